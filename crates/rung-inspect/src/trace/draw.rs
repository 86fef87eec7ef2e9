//! A trace as an SVG drawing.
//!
//! Tokens are side by side at the top. The residual stream of each is a line that runs down through the layers. An arrow goes from the
//! residual stream of the token that is read to the box of the token that reads it; the box lists the registers that changed. A residual
//! stream's line ends after the last layer that reads it.

use super::text::register_text;
use super::{AnswerTrace, ReadEdge, percent};
use rung_figure::figure::Chart;
use rung_figure::figure::csv::{Csv, field};
use rung_figure::figure::palette::{self, BACKGROUND, Colour, GRID, MUTED, TEXT_COLOUR};
use rung_figure::figure::svg::{Anchor, Area, Outline, Paint, Stroke, Svg, TextStyle};
use rung_figure::figure::text::wrap;

const MARGIN: f64 = 18.0;
/// Width of the column with the names of the layers.
const SIDEBAR_WIDTH: f64 = 190.0;
const LINE_HEIGHT: f64 = 15.0;
const FONT_SIZE: f64 = 11.5;
/// Height of the band in which a layer's arrows are drawn, for one arrow.
const ARROW_HEIGHT: f64 = 58.0;
/// Gap between the columns of two adjacent tokens.
const GAP: f64 = 16.0;
/// Gap between two columns where tokens are left out.
const OMISSION_GAP: f64 = 62.0;
const RESIDUAL_COLOUR: Colour = Colour(0xb9_bf_c9);
const BOX_COLOUR: Colour = Colour(0xf3_f6_fa);

/// Coordinates of the drawing's parts, in pixels.
struct Layout {
    /// Left edge and width of every shown token's column.
    columns: Vec<(f64, f64)>,
    /// Top edge and height of every layer's boxes.
    rows: Vec<(f64, f64)>,
    /// Bottom edge of the tokens.
    tokens_bottom: f64,
    width: f64,
    height: f64,
}

impl Layout {
    fn middle(&self, column: usize) -> f64 {
        let (left, width) = self.columns[column];
        left + width / 2.0
    }

    /// The top edge of a layer's band, where its arrows begin.
    fn layer_top(&self, layer: usize) -> f64 {
        if layer == 0 { self.tokens_bottom } else { self.rows[layer - 1].0 + self.rows[layer - 1].1 }
    }

    /// The bottom edge of the last layer.
    fn layers_bottom(&self) -> f64 {
        self.layer_top(self.rows.len())
    }
}

/// The colour of an arrow, by the mechanism that reads.
fn mechanism_colour(mechanism: &str) -> Colour {
    palette::series_colour(match mechanism {
        "attention" => 0,
        "state" => 1,
        _ => 2,
    })
}

impl Chart for AnswerTrace {
    fn title(&self) -> &str {
        &self.name
    }

    fn svg(&self) -> String {
        let layout = self.layout();
        let mut svg = Svg::new(layout.width, layout.height);
        let title = format!("{} on {}", self.name, self.task);
        svg.text((MARGIN, MARGIN + 10.0), &title, &TextStyle::new(15.0).bold());
        svg.text((MARGIN, MARGIN + 30.0), &self.verdict(), &TextStyle::new(12.5).coloured(MUTED));
        self.draw_omissions(&mut svg, &layout);
        self.draw_residuals(&mut svg, &layout);
        self.draw_tokens(&mut svg, &layout);
        for layer in 0..self.layers.len() {
            self.draw_sidebar(&mut svg, &layout, layer);
            self.draw_boxes(&mut svg, &layout, layer);
            self.draw_arrows(&mut svg, &layout, layer);
        }
        self.draw_answer(&mut svg, &layout);
        self.draw_legend(&mut svg, &layout);
        svg.finish(&format!("{title}. {}", self.verdict()))
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new(["layer", "through", "head", "from", "from_says", "to", "to_says", "share"]);
        for (index, layer) in self.layers.iter().enumerate() {
            for edge in &layer.edges {
                csv.row([
                    index.to_string(),
                    edge.mechanism.to_owned(),
                    edge.head.to_string(),
                    edge.from.to_string(),
                    self.token_text(edge.from).to_owned(),
                    edge.to.to_string(),
                    self.token_text(edge.to).to_owned(),
                    field(edge.share),
                ]);
            }
        }
        csv.finish()
    }
}

impl AnswerTrace {
    fn column(&self, position: usize) -> Option<usize> {
        self.shown_tokens.iter().position(|token| token.position == position)
    }

    /// The lines of a token's box in a layer, each with whether it is muted; `None` if the token has no box there.
    fn box_lines(&self, layer: usize, position: usize) -> Option<Vec<(String, bool)>> {
        let change = self.layers[layer].register_changes.iter().find(|change| change.position == position)?;
        let mut lines: Vec<(String, bool)> =
            change.registers.iter().map(|register| (register_text(register), register.unrounded)).collect();
        let self_edges = self.layers[layer].edges.iter().filter(|edge| edge.from == position && edge.to == position);
        lines.extend(self_edges.map(|edge| (format!("reads itself {}", percent(edge.share)), true)));
        if change.omitted_share > self.min_share {
            lines.push((format!("elsewhere {}", percent(change.omitted_share)), true));
        }
        Some(lines)
    }

    fn layout(&self) -> Layout {
        let style = TextStyle::new(FONT_SIZE).bold();
        let mut columns = Vec::new();
        let mut left = MARGIN + SIDEBAR_WIDTH;
        for (index, token) in self.shown_tokens.iter().enumerate() {
            let lines = (0..self.layers.len()).filter_map(|layer| self.box_lines(layer, token.position)).flatten();
            let widest = lines.map(|(line, _)| style.width(&line)).fold(44.0, f64::max);
            let width = widest.max(TextStyle::new(12.5).bold().width(&token.text)) + 18.0;
            if index > 0 {
                let adjacent = self.shown_tokens[index - 1].position + 1 == token.position;
                left += if adjacent { GAP } else { OMISSION_GAP };
            } else if token.position > 0 {
                left += OMISSION_GAP - GAP;
            }
            columns.push((left, width));
            left += width;
        }
        let omitted_at_end = self.shown_tokens.last().is_some_and(|last| last.position + 1 < self.token_count);
        let right = left + if omitted_at_end { OMISSION_GAP } else { 0.0 };
        let tokens_bottom = MARGIN + 30.0 + 26.0 + 40.0;
        let (mut rows, mut y) = (Vec::new(), tokens_bottom);
        for layer in 0..self.layers.len() {
            let line_counts = self
                .shown_tokens
                .iter()
                .filter_map(|token| self.box_lines(layer, token.position).map(|lines| lines.len()));
            let box_height = line_counts.max().unwrap_or(0).max(1) as f64 * LINE_HEIGHT + 12.0;
            let sidebar_height = self.sidebar_lines(layer).len() as f64 * 14.0 + 22.0;
            let arrow_height = match self.layers[layer].edges.iter().filter(|edge| edge.from != edge.to).count() {
                0 => 22.0,
                arrows => ARROW_HEIGHT + 9.0 * (arrows - 1).min(14) as f64,
            };
            let height = box_height.max(sidebar_height - arrow_height * 0.55);
            rows.push((y + arrow_height, height));
            y += arrow_height + height;
        }
        let note_lines = [self.scope_sentence(), self.accuracy_sentence()]
            .map(|text| wrap(&text, FONT_SIZE, false, (right - MARGIN).max(520.0)).len());
        let height = y + 64.0 + 26.0 + note_lines.iter().sum::<usize>() as f64 * 15.0 + MARGIN;
        let title_width = TextStyle::new(15.0).bold().width(&format!("{} on {}", self.name, self.task));
        let width = (right + MARGIN).max(title_width + 2.0 * MARGIN).max(560.0);
        Layout { columns, rows, tokens_bottom, width, height }
    }

    /// What a construction says that a layer does, wrapped to the sidebar.
    fn sidebar_lines(&self, layer: usize) -> Vec<String> {
        wrap(&self.layers[layer].description, FONT_SIZE, false, SIDEBAR_WIDTH - 22.0)
    }

    /// Writes the number of tokens that are left out between two columns.
    fn draw_omissions(&self, svg: &mut Svg, layout: &Layout) {
        let y = layout.tokens_bottom - 20.0;
        let mut note = |x: f64, count: usize| {
            if count > 0 {
                let style = TextStyle::new(11.0).coloured(MUTED).anchored(Anchor::Middle);
                svg.text((x, y), &format!("… {count} …"), &style);
            }
        };
        let mut next_position = 0;
        for (token, (left, _)) in self.shown_tokens.iter().zip(&layout.columns) {
            note(left - OMISSION_GAP / 2.0, token.position - next_position);
            next_position = token.position + 1;
        }
        if let Some((left, width)) = layout.columns.last() {
            note(left + width + OMISSION_GAP / 2.0, self.token_count - next_position);
        }
    }

    fn draw_tokens(&self, svg: &mut Svg, layout: &Layout) {
        for (token, &(left, width)) in self.shown_tokens.iter().zip(&layout.columns) {
            let area = Area::new(left, layout.tokens_bottom - 40.0, width, 40.0);
            svg.group(&format!("token {}", token.position), |svg| {
                let outline = Stroke::new(TEXT_COLOUR, 1.2);
                svg.rect(area, &Paint { fill: Some(BACKGROUND), stroke: Some(outline) });
                let middle = left + width / 2.0;
                let number_style = TextStyle::new(10.5).coloured(MUTED).anchored(Anchor::Middle);
                svg.text((middle, area.y + 14.0), &format!("#{}", token.position), &number_style);
                svg.text((middle, area.y + 31.0), &token.text, &TextStyle::new(12.5).bold().anchored(Anchor::Middle));
            });
        }
    }

    /// Draws each residual stream from its token down to the last layer that reads it or has a box of it.
    fn draw_residuals(&self, svg: &mut Svg, layout: &Layout) {
        for (column, token) in self.shown_tokens.iter().enumerate() {
            let x = layout.middle(column);
            let reads = |layer: usize| {
                self.layers[layer].edges.iter().any(|edge| edge.from == token.position && edge.to != token.position)
            };
            let last_read = (0..self.layers.len()).rev().find(|layer| reads(*layer));
            let last_box = (0..self.layers.len()).rev().find(|layer| self.box_lines(*layer, token.position).is_some());
            let read_y = last_read.map(|layer| layout.layer_top(layer) + 8.0);
            let box_y = last_box.map(|layer| layout.rows[layer].0);
            let mut end = read_y.into_iter().chain(box_y).fold(layout.tokens_bottom, f64::max);
            if token.position == self.position {
                end = layout.layers_bottom() + 10.0;
            }
            svg.line((x, layout.tokens_bottom), (x, end), &Stroke::new(RESIDUAL_COLOUR, 2.0));
        }
    }

    fn draw_sidebar(&self, svg: &mut Svg, layout: &Layout, layer: usize) {
        let y = layout.layer_top(layer);
        svg.line((MARGIN, y), (layout.width - MARGIN, y), &Stroke::new(GRID, 1.0));
        let title = format!("layer {layer}: {}", self.layers[layer].mixers);
        svg.text((MARGIN, y + 19.0), &title, &TextStyle::new(12.5).bold());
        for (index, line) in self.sidebar_lines(layer).iter().enumerate() {
            let position = (MARGIN, y + 36.0 + index as f64 * 14.0);
            svg.text(position, line, &TextStyle::new(FONT_SIZE).coloured(MUTED));
        }
    }

    fn draw_boxes(&self, svg: &mut Svg, layout: &Layout, layer: usize) {
        let (y, _) = layout.rows[layer];
        for (token, &(left, width)) in self.shown_tokens.iter().zip(&layout.columns) {
            let Some(lines) = self.box_lines(layer, token.position) else { continue };
            let height = lines.len().max(1) as f64 * LINE_HEIGHT + 6.0;
            let outline = Stroke::new(MUTED, 1.0);
            svg.rect(Area::new(left, y, width, height), &Paint { fill: Some(BOX_COLOUR), stroke: Some(outline) });
            for (index, (line, muted)) in lines.iter().enumerate() {
                let colour = if *muted { MUTED } else { TEXT_COLOUR };
                let style = TextStyle::new(FONT_SIZE).coloured(colour).anchored(Anchor::Middle);
                let style = if *muted { style } else { style.bold() };
                svg.text((left + width / 2.0, y + 14.0 + index as f64 * LINE_HEIGHT), line, &style);
            }
        }
    }

    fn draw_arrows(&self, svg: &mut Svg, layout: &Layout, layer: usize) {
        let edges = self.layers[layer].edges.iter().filter(|edge| edge.from != edge.to);
        let mut labels = Vec::new();
        for edge in edges {
            let (Some(from), Some(to)) = (self.column(edge.from), self.column(edge.to)) else { continue };
            let (start, end) = (layout.layer_top(layer) + 8.0, layout.rows[layer].0 - 1.0);
            // The tips of arrows to the same box are evenly spaced along its top edge.
            let incoming: Vec<&ReadEdge> =
                self.layers[layer].edges.iter().filter(|other| other.to == edge.to && other.from != other.to).collect();
            let number = incoming.iter().position(|other| *other == edge).unwrap_or_default() as f64 + 1.0;
            let (left, width) = layout.columns[to];
            let tip = left + width * number / (incoming.len() as f64 + 1.0);
            let points = [(layout.middle(from), start), (tip, end)];
            svg.group(&self.tooltip(edge), |svg| {
                draw_arrow(svg, points, 1.0 + 2.2 * edge.share, mechanism_colour(edge.mechanism));
            });
            labels.push((points, self.label(edge), mechanism_colour(edge.mechanism)));
        }
        let mut label_areas: Vec<Area> = Vec::new();
        for (points, label, colour) in &labels {
            let style = TextStyle::new(FONT_SIZE).bold().coloured(*colour).anchored(Anchor::Middle);
            let width = style.width(label) + 6.0;
            let area_at = |fraction: f64| {
                let x = points[0].0 + fraction * (points[1].0 - points[0].0);
                let y = points[0].1 + fraction * (points[1].1 - points[0].1);
                Area::new(x - width / 2.0, y - 9.0, width, 15.0)
            };
            // A label that would overlap others everywhere is left out; the arrow's tooltip has the same content.
            let is_free = |area: &Area| !label_areas.iter().any(|other| overlap(area, other));
            let Some(area) = [0.45, 0.6, 0.3, 0.75, 0.2].map(area_at).into_iter().find(is_free) else { continue };
            svg.rect(area, &Paint::fill(BACKGROUND));
            svg.text((area.x + width / 2.0, area.y + 12.0), label, &style);
            label_areas.push(area);
        }
    }

    /// The text on an arrow.
    fn label(&self, edge: &ReadEdge) -> String {
        let share = percent(edge.share);
        if self.constructed || edge.mechanism == "convolution" { share } else { format!("h{} {share}", edge.head) }
    }

    /// The tooltip of an arrow.
    fn tooltip(&self, edge: &ReadEdge) -> String {
        let ReadEdge { mechanism, head, from, to, share } = edge;
        let (reader, source) = (self.token_text(*to), self.token_text(*from));
        format!("#{to} {reader} reads {} of head {head} from #{from} {source}, through {mechanism}", percent(*share))
    }

    fn draw_answer(&self, svg: &mut Svg, layout: &Layout) {
        let Some(column) = self.column(self.position) else { return };
        let (x, y) = (layout.middle(column), layout.layers_bottom() + 12.0);
        let correct = self.expected.is_none_or(|expected| expected == self.answer);
        let label = format!("answer {}", self.answer);
        let style = TextStyle::new(13.0).bold().anchored(Anchor::Middle).coloured(BACKGROUND);
        let width = style.width(&label) + 18.0;
        let fill =
            if correct { palette::evidence_colour(rung_figure::Evidence::Constructed) } else { Colour(0xa6_36_12) };
        svg.rect(Area::new(x - width / 2.0, y, width, 24.0), &Paint::fill(fill));
        svg.text((x, y + 17.0), &label, &style);
    }

    fn draw_legend(&self, svg: &mut Svg, layout: &Layout) {
        let mut y = layout.layers_bottom() + 64.0;
        let mut x = MARGIN;
        for (mechanism, label) in
            [("attention", "attention"), ("state", "recurrent state"), ("convolution", "convolution")]
        {
            if self
                .layers
                .iter()
                .flat_map(|layer| &layer.edges)
                .any(|edge| edge.mechanism == mechanism && edge.from != edge.to)
            {
                draw_arrow(svg, [(x, y - 4.0), (x + 26.0, y - 4.0)], 2.4, mechanism_colour(mechanism));
                let style = TextStyle::new(FONT_SIZE);
                svg.text((x + 32.0, y), label, &style);
                x += 32.0 + style.width(label) + 24.0;
            }
        }
        if self.constructed {
            svg.text(
                (x, y),
                "= a register, ~ a value that was read and is not yet rounded to bits",
                &TextStyle::new(FONT_SIZE).coloured(MUTED),
            );
        }
        let text_width = layout.width - 2.0 * MARGIN;
        for line in [self.scope_sentence(), self.accuracy_sentence()]
            .iter()
            .flat_map(|text| wrap(text, FONT_SIZE, false, text_width))
        {
            y += 17.0;
            svg.text((MARGIN, y), &line, &TextStyle::new(FONT_SIZE).coloured(MUTED));
        }
    }
}

fn overlap(left: &Area, right: &Area) -> bool {
    left.x < right.right() && right.x < left.right() && left.y < right.bottom() && right.y < left.bottom()
}

fn draw_arrow(svg: &mut Svg, [from, to]: [(f64, f64); 2], width: f64, colour: Colour) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = (dx * dx + dy * dy).sqrt().max(1.0);
    let (unit_x, unit_y) = (dx / length, dy / length);
    let (head, half) = (7.0 + width, 3.2 + width * 0.6);
    let neck = (to.0 - unit_x * head, to.1 - unit_y * head);
    svg.line(from, neck, &Stroke::new(colour, width));
    let points =
        [to, (neck.0 - unit_y * half, neck.1 + unit_x * half), (neck.0 + unit_y * half, neck.1 - unit_x * half)];
    svg.path(&Outline::polygon(&points), &Paint::fill(colour));
    svg.circle(from, 1.0 + width, &Paint::fill(colour));
}
