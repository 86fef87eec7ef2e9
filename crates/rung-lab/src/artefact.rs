//! What experiments and chapters have in common: how much work they do, and the files that they leave.

use rung_figure::figure::Chart;
use serde::{Deserialize, Serialize};

/// A chart as it was drawn, for evidence whose chart needs the network that it was computed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawing {
    title: String,
    svg: String,
    csv: String,
}

impl Drawing {
    /// Draws a chart.
    pub fn of(chart: &dyn Chart) -> Self {
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

/// How much work a chapter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Seconds: whether everything works, not what it shows.
    Smoke,
    /// Minutes on two cores.
    Quick,
    /// As far as it goes.
    Full,
}

impl Preset {
    /// What users type.
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
    /// Where, below the output directory.
    pub path: String,
    /// What.
    pub bytes: Vec<u8>,
}

/// A figure as files: SVG, CSV and, where the feature is on, PNG.
pub(crate) fn figure_files(name: &str, chart: &dyn Chart) -> Vec<Artefact> {
    let svg = chart.svg();
    let mut files = vec![Artefact { path: format!("figures/{name}.csv"), bytes: chart.csv().into_bytes() }];
    #[cfg(feature = "png")]
    if let Ok(bytes) = rung_figure::figure::png(&svg) {
        files.push(Artefact { path: format!("figures/{name}.png"), bytes });
    }
    files.push(Artefact { path: format!("figures/{name}.svg"), bytes: svg.into_bytes() });
    files
}
