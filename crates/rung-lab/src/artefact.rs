//! Types that experiments and chapters share: presets, and the files that they produce.

use rung_figure::figure::Chart;
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

/// The files of a figure: SVG, CSV and, with the feature `png`, PNG.
pub(crate) fn figure_files(name: &str, chart: &dyn Chart) -> Vec<Artefact> {
    let svg = chart.svg();
    let mut files = vec![Artefact { path: format!("figures/{name}.csv"), bytes: chart.csv().into_bytes() }];
    #[cfg(feature = "png")]
    if let Ok(bytes) = rung_figure::figure::render_png(&svg) {
        files.push(Artefact { path: format!("figures/{name}.png"), bytes });
    }
    files.push(Artefact { path: format!("figures/{name}.svg"), bytes: svg.into_bytes() });
    files
}
