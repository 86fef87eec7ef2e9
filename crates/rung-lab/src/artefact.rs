//! Types that experiments and chapters share: presets, and the files that they produce.

use rung_figure::figure::Chart;
use rung_figure::report::{Chapter, Figure, Prose};
use serde::{Deserialize, Serialize};

/// A chart that is stored as drawn. Records of networks store it, because the network is not available when the report is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawing {
    title: String,
    svg: String,
    csv: String,
}

impl Drawing {
    /// Draws a chart.
    pub fn new(chart: &dyn Chart) -> Self {
        Self { title: chart.title().to_owned(), svg: chart.svg(), csv: chart.csv() }
    }
}

impl Chart for Drawing {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        self.svg.clone()
    }

    fn csv(&self) -> String {
        self.csv.clone()
    }
}

/// How much computation a report takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Seconds: tests that everything works; the results are no evidence.
    Smoke,
    /// Minutes on two cores.
    Quick,
    /// An hour or two on two cores, with the experiments on open questions.
    Full,
}

impl Preset {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// A file that belongs to a chapter.
#[derive(Clone, Debug)]
pub struct Artefact {
    /// Path below the output directory.
    pub path: String,
    /// The contents.
    pub bytes: Vec<u8>,
}

/// Adds a figure to a chapter, and its files to those of the report. `name` is that of the files, and `command` reproduces the figure.
pub(crate) fn add_figure(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    name: &str,
    chart: &dyn Chart,
    caption: impl Into<Prose>,
    command: impl Into<String>,
) {
    chapter.figure(figure_with_files(artefacts, name, chart, caption, command));
}

/// The figure of a chart, for a place other than the end of a chapter. Its files are added to those of the report, as by [`add_figure`].
pub(crate) fn figure_with_files(
    artefacts: &mut Vec<Artefact>,
    name: &str,
    chart: &dyn Chart,
    caption: impl Into<Prose>,
    command: impl Into<String>,
) -> Figure {
    artefacts.extend(figure_files(name, chart));
    Figure::new(chart, caption, command, format!("{name}.csv"))
}

/// The files of a figure: SVG, CSV and, with the feature `png`, PNG.
fn figure_files(name: &str, chart: &dyn Chart) -> Vec<Artefact> {
    let svg = chart.svg();
    let mut files = vec![Artefact { path: format!("figures/{name}.csv"), bytes: chart.csv().into_bytes() }];
    #[cfg(feature = "png")]
    if let Ok(bytes) = rung_figure::figure::render_png(&svg) {
        files.push(Artefact { path: format!("figures/{name}.png"), bytes });
    }
    files.push(Artefact { path: format!("figures/{name}.svg"), bytes: svg.into_bytes() });
    files
}
