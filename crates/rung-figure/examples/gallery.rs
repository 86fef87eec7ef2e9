//! Draws one of each figure and a report around them, from invented numbers.
//!
//! ```text
//! cargo run -p rung-figure --example gallery -- DIRECTORY
//! ```
//!
//! Every title says that the numbers are samples. Look at these files after a change of how figures or reports are drawn.

use std::fs;
use std::path::{Path, PathBuf};

use rung_figure::Evidence;
use rung_figure::figure::{
    AxisSpec, Chart, ContextRange, HopMap, HopRow, LineChart, Marker, Point, RangeVerdict, Scale, Series,
};
use rung_figure::report::{Chapter, Column, Figure, Prose, Report, Table, TableCell};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: gallery DIRECTORY")?);
    fs::create_dir_all(&directory)?;
    save(&directory, "map-short", &short_map())?;
    save(&directory, "map-long", &long_map())?;
    save(&directory, "map-tall", &tall_map())?;
    save(&directory, "curve", &curve())?;
    save(&directory, "training", &training())?;
    std::fs::write(directory.join("report.html"), report().html()?)?;
    Ok(())
}

/// Writes a chart in all three forms.
fn save(directory: &Path, name: &str, chart: &dyn Chart) -> Result<(), Box<dyn std::error::Error>> {
    let svg = chart.svg();
    std::fs::write(directory.join(name).with_extension("svg"), &svg)?;
    std::fs::write(directory.join(name).with_extension("csv"), chart.csv())?;
    #[cfg(feature = "png")]
    std::fs::write(directory.join(name).with_extension("png"), rung_figure::figure::render_png(&svg)?)?;
    Ok(())
}

/// A row that is solved, then unknown, then impossible.
fn row(hops: u32, solved: f64, impossible: f64) -> HopRow {
    let ranges = [
        ContextRange::new(0.0, solved, RangeVerdict::Solved),
        ContextRange::new(solved, impossible, RangeVerdict::Unknown),
        ContextRange::new(impossible, f64::INFINITY, RangeVerdict::Impossible),
    ];
    HopRow::new(hops, ranges.into_iter().filter(|range| range.from_log2 < range.to_log2).collect())
}

fn short_map() -> HopMap {
    let rows = vec![
        row(1, f64::INFINITY, f64::INFINITY),
        row(2, f64::INFINITY, f64::INFINITY),
        row(3, 12.3, 31.4).with_marker(Marker::papers(40.0)),
        row(4, 0.0, 22.05).with_marker(Marker::papers(36.0)),
        row(5, 0.0, 14.0),
    ];
    HopMap::new("Sample data: full linear*3 full, width 64", rows)
}

fn long_map() -> HopMap {
    let rows = vec![
        row(1, f64::INFINITY, f64::INFINITY),
        row(2, f64::INFINITY, f64::INFINITY),
        row(3, f64::INFINITY, f64::INFINITY),
        row(4, 18.0, 410.7).with_marker(Marker::papers(530.2)),
        row(5, 9.5, 197.3).with_marker(Marker::papers(211.0)),
        row(6, 0.0, 98.2).with_marker(Marker::papers(22.0)),
        row(7, 0.0, 61.6),
        row(8, 0.0, 19.2).with_marker(Marker::papers(600.0)),
    ];
    HopMap::new(
        "Sample data: (full gdn*3)*12, width 4096, one forward pass over a long context, with a title that needs two lines",
        rows,
    )
}

fn tall_map() -> HopMap {
    let row = |hops: u32| row(hops, 40.0 - 1.5 * f64::from(hops), 60.0 - 1.4 * f64::from(hops));
    HopMap::new("Sample data: many hops", (1..=24).map(row).collect()).up_to(48.0)
}

fn curve() -> LineChart {
    let curve =
        |width: f64| (4..=40).map(|log2| Point::new(2f64.powi(log2), width * 96.0 / 2f64.powi(log2).sqrt())).collect();
    LineChart::new(
        "Sample data: bits had over bits needed, sparse attention",
        AxisSpec::new("tokens in the context, n", Scale::Log2),
        AxisSpec::new("bits had / bits needed", Scale::Log10),
    )
    .series(Series::line("width 64", curve(64.0)).with_evidence(Evidence::Proved))
    .series(Series::line("width 1024", curve(1024.0)).with_evidence(Evidence::Proved))
    .series(
        Series::points("built at width 64", vec![Point::new(256.0, 410.0), Point::new(4096.0, 105.0)])
            .with_evidence(Evidence::Constructed),
    )
    .guide(1.0, "below this line: impossible")
}

fn training() -> LineChart {
    let learn = |speed: f64, last: f64| {
        let point = |hops: i32| {
            let share = last + (1.0 - last) / (1.0 + (f64::from(hops) - speed).exp());
            Point::new(f64::from(hops), share).with_spread((share - 0.06).max(0.0), (share + 0.04).min(1.0))
        };
        (1..=10).map(point).collect()
    };
    LineChart::new(
        "Sample data: accuracy after training, three seeds",
        AxisSpec::new("hops", Scale::Linear),
        AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.0),
    )
    .series(Series::line_and_points("full*4", learn(6.0, 0.12)))
    .series(Series::line_and_points("full linear*3", learn(3.2, 0.12)))
    .series(Series::line_and_points("(gdn*3 full)*2", learn(4.5, 0.12)))
    .guide(0.125, "guessing")
}

fn certificates() -> Table {
    let columns = [
        Column::text("stack"),
        Column::number("hops"),
        Column::number("impossible from (tokens)"),
        Column::number("bits had"),
        Column::number("bits needed"),
        Column::text("checked by"),
    ];
    let mut table = Table::new("Sample data: certificates, each checked on its own.", columns);
    for (stack, hops, from, had, needed) in [
        ("full linear*3 full", "4", "2^22.1", "1,048,576", "1,048,801"),
        ("(full gdn*3)*12", "6", "2^98.2", "33,554,432", "33,560,011"),
        ("mamba2{heads=8,head=64,state=128}*24", "2", "2^19.2", "524,288", "524,301"),
    ] {
        let from = TableCell::from(from).with_evidence(Evidence::Proved);
        table.row([TableCell::code(stack), hops.into(), from, had.into(), needed.into(), "integer checker".into()]);
    }
    table
}

fn proved() -> Chapter {
    let mut chapter = Chapter::new("proved", "Proved");
    chapter
        .paragraph(
            Prose::new()
                .text("A stack with two full layers solves ")
                .number("2 hops", Evidence::Constructed)
                .text(" at any length, and no weights let it solve four beyond ")
                .number("2^22.1 tokens", Evidence::Proved)
                .text(
                    ". These numbers are invented: they show how a report looks, and say nothing about any stack. See ",
                )
                .link("the next chapter", "#measured")
                .text(" for what training does."),
        )
        .heading("Maps")
        .figure(Figure::new(
            &short_map(),
            "Sample data. A short map has a plain axis.",
            "rung map 'full linear*3 full'",
            "map-short.csv",
        ))
        .figure(Figure::new(
            &long_map(),
            "Sample data. When bounds begin far out, the axis is compressed beyond 2²⁴ tokens.",
            "rung map '(full gdn*3)*12'",
            "map-long.csv",
        ))
        .heading("Certificates")
        .table(certificates())
        .note(Prose::new().strong("Reading the table. ").text("A certificate holds when bits needed exceed bits had."))
        .command("rung bound '(full gdn*3)*12' --hops 6 --out six.json\nrung check six.json")
        .heading("The sparse curve")
        .figure(Figure::new(
            &curve(),
            "Sample data. Where the curve falls below one, the stack lacks bits.",
            "rung reproduce --only sparse",
            "curve.csv",
        ));
    chapter
}

fn measured() -> Chapter {
    let mut chapter = Chapter::new("measured", "Measured");
    chapter
        .paragraph(
            Prose::new()
                .text("Four full layers reach ")
                .number("0.98 ± 0.01", Evidence::Measured)
                .text(" on three hops (sample data)."),
        )
        .figure(Figure::new(
            &training(),
            "Sample data. Bars run from the worst to the best seed.",
            "rung reproduce --only training",
            "training.csv",
        ))
        .figure(Figure::new(&tall_map(), "Sample data. Many rows, cut at 2⁴⁸ tokens.", "", "map-tall.csv"));
    chapter
}

fn report() -> Report {
    Report::new("Sample report: how many steps in one pass")
        .summary("This report is made of invented numbers. It shows what a report of Rung looks like: maps of what a stack can and cannot do, tables of certificates, and curves.")
        .fact("rung", env!("CARGO_PKG_VERSION"))
        .fact("preset", "sample")
        .fact("seed", "7")
        .chapter(proved())
        .chapter(measured())
}
