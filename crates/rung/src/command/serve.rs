//! `rung serve`: the web page on this machine, and a live page of training runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use rung_web::server::Server;
use serde_json::json;

use crate::output::print;

/// Serve the web page, and a folder of training runs live
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung serve
  rung serve runs/ --port 8080

The server answers only pages that it served itself, reads nothing outside of the folder and writes nothing.
Stop it with Ctrl-C.")]
pub struct Serve {
    /// Folder of training runs, as written by `rung train` and `rung sweep`
    runs: Option<PathBuf>,
    /// Port; 0 for any free one
    #[arg(long, default_value_t = 7864)]
    port: u16,
    /// Address to listen at; the default is this machine only
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Write the address as JSON
    #[arg(long)]
    json: bool,
}

impl Serve {
    /// Runs the command.
    ///
    /// # Errors
    /// The port is taken, or the folder cannot be read.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let address = SocketAddr::new(self.host, self.port);
        let runs_text = self.runs.as_ref().map_or_else(String::new, |folder| format!(" with {}", folder.display()));
        let server =
            Server::listen(address, self.runs.clone()).with_context(|| format!("serving at {address}{runs_text}"))?;
        let page = format!("http://{}/", server.address());
        if self.json {
            print(&format!("{}\n", json!({"address": page})))?;
        } else {
            print(&format!("{page}\n"))?;
        }
        server.run()
    }
}
