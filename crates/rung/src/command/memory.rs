//! `--memory SIZE`, for commands whose memory depends on their input.

use rung_audit::parse_bytes;
use rung_nn::memory;

/// The limit on the memory of a command.
#[derive(Debug, clap::Args)]
pub struct MemoryOption {
    /// Refuse work that would take more memory than this, such as 512M or 4GiB [default: what the machine has available]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,
}

impl MemoryOption {
    /// Sets the memory limit of this process.
    pub fn apply(&self) {
        memory::set_limit(self.memory);
    }
}

/// Parses a size of at least 1 KiB.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if bytes >= 1 << 10 {
        Ok(bytes)
    } else {
        Err(format!("found {text:?}, expected at least 1K, such as 512M or 2GiB"))
    }
}
