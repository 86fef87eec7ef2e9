//! A trace as a drawing.
//!
//! Tokens stand side by side at the top, each with its stream as a line that runs down through the layers. An arrow goes from the
//! stream of the token that is read to the box of the token that reads; the box lists what it then knows. Streams end where
//! no later token reads them.

use super::text::one;
use super::{AttentionEdge, Picture, percent};
use rung_figure::figure::Chart;
use rung_figure::figure::csv::{Csv, field};
use rung_figure::figure::palette::{self, Colour, GRID, INK, MUTED, PAPER};
use rung_figure::figure::svg::{Anchor, Area, Outline, Paint, Stroke, Svg, TextStyle};
use rung_figure::figure::text::wrap;

const MARGIN: f64 = 18.0;
const SIDE: f64 = 190.0;
const LINE: f64 = 15.0;
const SMALL: f64 = 11.5;
/// Height in which arrows run.
const FALL: f64 = 58.0;
/// Width between neighbours, and where tokens between them are left out.
const GAP: f64 = 16.0;
const WIDE_GAP: f64 = 62.0;
const STREAM: Colour = Colour(0xb9_bf_c9);
const BOX: Colour = Colour(0xf3_f6_fa);

/// Where everything is.
struct Layout {
    /// Left edge and width of every shown token's column.
    columns: Vec<(f64, f64)>,
    /// Upper edge of every layer's boxes and their height.
    rows: Vec<(f64, f64)>,
    /// Lower edge of the tokens at the top.
    top: f64,
    width: f64,
    height: f64,
}

impl Layout {
    fn middle(&self, column: usize) -> f64 {
        let (left, width) = self.columns[column];
        left + width / 2.0
    }
}

fn colour(through: &str) -> Colour {
    palette::series(match through {
        "attention" => 0,
        "state" => 1,
        _ => 2,
    })
}

impl Chart for Picture {
    fn title(&self) -> &str {
        &self.name
    }

    fn svg(&self) -> String {
        let layout = self.layout();
        let mut svg = Svg::new(layout.width, layout.height);
        let title = format!("{} on {}", self.name, self.task);
        svg.text((MARGIN, MARGIN + 10.0), &title, &TextStyle::new(15.0).bold());
        svg.text((MARGIN, MARGIN + 30.0), &self.verdict(), &TextStyle::new(12.5).coloured(MUTED));
        self.draw_gaps(&mut svg, &layout);
        self.draw_streams(&mut svg, &layout);
        self.draw_tokens(&mut svg, &layout);
        for layer in 0..self.layers.len() {
            self.draw_side(&mut svg, &layout, layer);
            self.draw_boxes(&mut svg, &layout, layer);
            self.draw_arrows(&mut svg, &layout, layer);
        }
        self.draw_answer(&mut svg, &layout);
        self.draw_notes(&mut svg, &layout);
        svg.finish(&format!("{title}. {}", self.verdict()))
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new(["layer", "through", "head", "from", "from_says", "to", "to_says", "share"]);
        for (index, layer) in self.layers.iter().enumerate() {
            for read in &layer.reads {
                csv.row([
                    index.to_string(),
                    read.through.to_owned(),
                    read.head.to_string(),
                    read.from.to_string(),
                    self.says(read.from).to_owned(),
                    read.to.to_string(),
                    self.says(read.to).to_owned(),
                    field(read.share),
                ]);
            }
        }
        csv.finish()
    }
}

impl Picture {
    fn column(&self, position: usize) -> Option<usize> {
        self.shown.iter().position(|shown| shown.position == position)
    }

    /// Lines of the box of a token in a layer; none if the token has no part in it.
    fn lines(&self, layer: usize, position: usize) -> Option<Vec<(String, bool)>> {
        let learned = self.layers[layer].learned.iter().find(|learned| learned.position == position)?;
        let mut lines: Vec<(String, bool)> = learned.registers.iter().map(|held| (one(held), held.raw)).collect();
        let own = self.layers[layer].reads.iter().filter(|read| read.from == position && read.to == position);
        lines.extend(own.map(|read| (format!("reads itself {}", percent(read.share)), true)));
        if learned.elsewhere > self.least_share {
            lines.push((format!("elsewhere {}", percent(learned.elsewhere)), true));
        }
        Some(lines)
    }

    fn layout(&self) -> Layout {
        let lettering = TextStyle::new(SMALL).bold();
        let mut columns = Vec::new();
        let mut left = MARGIN + SIDE;
        for (index, shown) in self.shown.iter().enumerate() {
            let boxes = (0..self.layers.len()).filter_map(|layer| self.lines(layer, shown.position)).flatten();
            let widest = boxes.map(|(line, _)| lettering.width(&line)).fold(44.0, f64::max);
            let width = widest.max(TextStyle::new(12.5).bold().width(&shown.says)) + 18.0;
            if index > 0 {
                let neighbours = self.shown[index - 1].position + 1 == shown.position;
                left += if neighbours { GAP } else { WIDE_GAP };
            } else if shown.position > 0 {
                left += WIDE_GAP - GAP;
            }
            columns.push((left, width));
            left += width;
        }
        let after = self.shown.last().is_some_and(|last| last.position + 1 < self.tokens);
        let right = left + if after { WIDE_GAP } else { 0.0 };
        let top = MARGIN + 30.0 + 26.0 + 40.0;
        let (mut rows, mut y) = (Vec::new(), top);
        for layer in 0..self.layers.len() {
            let lines =
                self.shown.iter().filter_map(|shown| self.lines(layer, shown.position).map(|lines| lines.len()));
            let tallest = lines.max().unwrap_or(0).max(1) as f64 * LINE + 12.0;
            // Room for the words beside it.
            let words = self.words(layer).len() as f64 * 14.0 + 22.0;
            let fall = match self.layers[layer].reads.iter().filter(|read| read.from != read.to).count() {
                0 => 22.0,
                arrows => FALL + 9.0 * (arrows - 1).min(14) as f64,
            };
            let height = tallest.max(words - fall * 0.55);
            rows.push((y + fall, height));
            y += fall + height;
        }
        let words =
            [self.scope(), self.check()].map(|text| wrap(&text, SMALL, false, (right - MARGIN).max(520.0)).len());
        let height = y + 64.0 + 26.0 + words.iter().sum::<usize>() as f64 * 15.0 + MARGIN;
        let titles = TextStyle::new(15.0).bold().width(&format!("{} on {}", self.name, self.task));
        let width = (right + MARGIN).max(titles + 2.0 * MARGIN).max(560.0);
        Layout { columns, rows, top, width, height }
    }

    fn words(&self, layer: usize) -> Vec<String> {
        wrap(&self.layers[layer].about, SMALL, false, SIDE - 22.0)
    }

    fn draw_gaps(&self, svg: &mut Svg, layout: &Layout) {
        let middle = layout.top - 20.0;
        let mut note = |x: f64, count: usize| {
            if count > 0 {
                let lettering = TextStyle::new(11.0).coloured(MUTED).anchored(Anchor::Middle);
                svg.text((x, middle), &format!("… {count} …"), &lettering);
            }
        };
        let mut next = 0;
        for (shown, (left, _)) in self.shown.iter().zip(&layout.columns) {
            note(left - WIDE_GAP / 2.0, shown.position - next);
            next = shown.position + 1;
        }
        if let Some((left, width)) = layout.columns.last() {
            note(left + width + WIDE_GAP / 2.0, self.tokens - next);
        }
    }

    fn draw_tokens(&self, svg: &mut Svg, layout: &Layout) {
        for (shown, &(left, width)) in self.shown.iter().zip(&layout.columns) {
            let area = Area::new(left, layout.top - 40.0, width, 40.0);
            svg.group(&format!("token {}", shown.position), |svg| {
                let outline = Stroke::new(INK, 1.2);
                svg.rect(area, &Paint { fill: Some(PAPER), stroke: Some(outline) });
                let middle = left + width / 2.0;
                let place = TextStyle::new(10.5).coloured(MUTED).anchored(Anchor::Middle);
                svg.text((middle, area.y + 14.0), &format!("#{}", shown.position), &place);
                svg.text((middle, area.y + 31.0), &shown.says, &TextStyle::new(12.5).bold().anchored(Anchor::Middle));
            });
        }
    }

    /// A stream runs from the token down to the last layer that has to do with it.
    fn draw_streams(&self, svg: &mut Svg, layout: &Layout) {
        for (column, shown) in self.shown.iter().enumerate() {
            let x = layout.middle(column);
            let reads = |layer: usize| {
                self.layers[layer].reads.iter().any(|read| read.from == shown.position && read.to != shown.position)
            };
            let last_read = (0..self.layers.len()).rev().find(|layer| reads(*layer));
            let last_box = (0..self.layers.len()).rev().find(|layer| self.lines(*layer, shown.position).is_some());
            let read_at = last_read.map(|layer| above(layout, layer) + 8.0);
            let boxed_at = last_box.map(|layer| layout.rows[layer].0);
            let mut end = read_at.into_iter().chain(boxed_at).fold(layout.top, f64::max);
            if shown.position == self.position {
                end = below(layout) + 10.0;
            }
            svg.line((x, layout.top), (x, end), &Stroke::new(STREAM, 2.0));
        }
    }

    fn draw_side(&self, svg: &mut Svg, layout: &Layout, layer: usize) {
        let y = above(layout, layer);
        svg.line((MARGIN, y), (layout.width - MARGIN, y), &Stroke::new(GRID, 1.0));
        let title = format!("layer {layer}: {}", self.layers[layer].mixers);
        svg.text((MARGIN, y + 19.0), &title, &TextStyle::new(12.5).bold());
        for (index, line) in self.words(layer).iter().enumerate() {
            let at = (MARGIN, y + 36.0 + index as f64 * 14.0);
            svg.text(at, line, &TextStyle::new(SMALL).coloured(MUTED));
        }
    }

    fn draw_boxes(&self, svg: &mut Svg, layout: &Layout, layer: usize) {
        let (y, _) = layout.rows[layer];
        for (shown, &(left, width)) in self.shown.iter().zip(&layout.columns) {
            let Some(lines) = self.lines(layer, shown.position) else { continue };
            let height = lines.len().max(1) as f64 * LINE + 6.0;
            let outline = Stroke::new(MUTED, 1.0);
            svg.rect(Area::new(left, y, width, height), &Paint { fill: Some(BOX), stroke: Some(outline) });
            for (index, (line, raw)) in lines.iter().enumerate() {
                let ink = if *raw { MUTED } else { INK };
                let lettering = TextStyle::new(SMALL).coloured(ink).anchored(Anchor::Middle);
                let lettering = if *raw { lettering } else { lettering.bold() };
                svg.text((left + width / 2.0, y + 14.0 + index as f64 * LINE), line, &lettering);
            }
        }
    }

    fn draw_arrows(&self, svg: &mut Svg, layout: &Layout, layer: usize) {
        let reads = self.layers[layer].reads.iter().filter(|read| read.from != read.to);
        let mut labels = Vec::new();
        for read in reads {
            let (Some(from), Some(to)) = (self.column(read.from), self.column(read.to)) else { continue };
            let (start, end) = (above(layout, layer) + 8.0, layout.rows[layer].0 - 1.0);
            // Arrows land beside each other, from the left if they come from there.
            let arriving: Vec<&AttentionEdge> =
                self.layers[layer].reads.iter().filter(|other| other.to == read.to && other.from != other.to).collect();
            let place = arriving.iter().position(|other| *other == read).unwrap_or_default() as f64 + 1.0;
            let (left, width) = layout.columns[to];
            let landing = left + width * place / (arriving.len() as f64 + 1.0);
            let points = [(layout.middle(from), start), (landing, end)];
            svg.group(&self.hint(read), |svg| arrow(svg, points, 1.0 + 2.2 * read.share, colour(read.through)));
            labels.push((points, self.label(read), colour(read.through)));
        }
        let mut taken: Vec<Area> = Vec::new();
        for (points, label, colour) in &labels {
            let lettering = TextStyle::new(SMALL).bold().coloured(*colour).anchored(Anchor::Middle);
            let width = lettering.width(label) + 6.0;
            let place = |along: f64| {
                let x = points[0].0 + along * (points[1].0 - points[0].0);
                let y = points[0].1 + along * (points[1].1 - points[0].1);
                Area::new(x - width / 2.0, y - 9.0, width, 15.0)
            };
            // A label that finds no free place is left to the pointer.
            let free = |area: &Area| !taken.iter().any(|other| overlap(area, other));
            let Some(area) = [0.45, 0.6, 0.3, 0.75, 0.2].map(place).into_iter().find(free) else { continue };
            svg.rect(area, &Paint::fill(PAPER));
            svg.text((area.x + width / 2.0, area.y + 12.0), label, &lettering);
            taken.push(area);
        }
    }

    fn label(&self, read: &AttentionEdge) -> String {
        let share = percent(read.share);
        if self.constructed || read.through == "convolution" { share } else { format!("h{} {share}", read.head) }
    }

    fn hint(&self, read: &AttentionEdge) -> String {
        let AttentionEdge { through, head, from, to, share } = read;
        let (says, source) = (self.says(*to), self.says(*from));
        format!("#{to} {says} reads {} of head {head} from #{from} {source}, through {through}", percent(*share))
    }

    fn draw_answer(&self, svg: &mut Svg, layout: &Layout) {
        let Some(column) = self.column(self.position) else { return };
        let (x, y) = (layout.middle(column), below(layout) + 12.0);
        let right = self.expected.is_none_or(|expected| expected == self.answer);
        let label = format!("answer {}", self.answer);
        let lettering = TextStyle::new(13.0).bold().anchored(Anchor::Middle).coloured(PAPER);
        let width = lettering.width(&label) + 18.0;
        let fill = if right { palette::evidence(rung_figure::Evidence::Constructed) } else { Colour(0xa6_36_12) };
        svg.rect(Area::new(x - width / 2.0, y, width, 24.0), &Paint::fill(fill));
        svg.text((x, y + 17.0), &label, &lettering);
    }

    fn draw_notes(&self, svg: &mut Svg, layout: &Layout) {
        let mut y = below(layout) + 64.0;
        let mut x = MARGIN;
        for (through, words) in
            [("attention", "attention"), ("state", "recurrent state"), ("convolution", "convolution")]
        {
            if self
                .layers
                .iter()
                .flat_map(|layer| &layer.reads)
                .any(|read| read.through == through && read.from != read.to)
            {
                arrow(svg, [(x, y - 4.0), (x + 26.0, y - 4.0)], 2.4, colour(through));
                let lettering = TextStyle::new(SMALL);
                svg.text((x + 32.0, y), words, &lettering);
                x += 32.0 + lettering.width(words) + 24.0;
            }
        }
        if self.constructed {
            svg.text(
                (x, y),
                "= a register, ~ what was read before it is snapped to bits",
                &TextStyle::new(SMALL).coloured(MUTED),
            );
        }
        let room = layout.width - 2.0 * MARGIN;
        for line in [self.scope(), self.check()].iter().flat_map(|text| wrap(text, SMALL, false, room)) {
            y += 17.0;
            svg.text((MARGIN, y), &line, &TextStyle::new(SMALL).coloured(MUTED));
        }
    }
}

fn overlap(left: &Area, right: &Area) -> bool {
    left.x < right.right() && right.x < left.right() && left.y < right.bottom() && right.y < left.bottom()
}

/// The level above a layer: where its arrows begin.
fn above(layout: &Layout, layer: usize) -> f64 {
    if layer == 0 { layout.top } else { layout.rows[layer - 1].0 + layout.rows[layer - 1].1 }
}

/// The level below the last layer.
fn below(layout: &Layout) -> f64 {
    above(layout, layout.rows.len())
}

fn arrow(svg: &mut Svg, [from, to]: [(f64, f64); 2], width: f64, colour: Colour) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = (dx * dx + dy * dy).sqrt().max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let (head, half) = (7.0 + width, 3.2 + width * 0.6);
    let neck = (to.0 - ux * head, to.1 - uy * head);
    svg.line(from, neck, &Stroke::new(colour, width));
    let points = [to, (neck.0 - uy * half, neck.1 + ux * half), (neck.0 + uy * half, neck.1 - ux * half)];
    svg.path(&Outline::polygon(&points), &Paint::fill(colour));
    svg.circle(from, 1.0 + width, &Paint::fill(colour));
}
