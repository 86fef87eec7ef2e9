//! Engines: how serving software allocates KV cache and recurrent state for a model.
//!
//! One engine per file, like dialects. Each turns the layers' caches and the user's settings into a [`MemoryPlan`]: block and
//! page sizes, bytes at a context, the context and requests that fit into a memory size, and the flags to set. The rule behind
//! a number is stored beside it. Adding one: write the file, add its name to [`ENGINES`].
//!
//! ```text
//! Audit --> ModelCaches (elements per layer) --> engine's rules + settings --> MemoryPlan --> report
//! ```
//!
//! All bytes are those of one device: with tensor parallelism every device holds its shard.

pub mod device;
mod format;
mod layer_cache;
mod llama_cpp;
mod sglang;
mod tensorrt_llm;
mod transformers;
mod vllm;

pub use format::{BF16_CACHE, CacheFormat, F16_CACHE};

use crate::{Audit, AuditError, Dtype};
use layer_cache::{ModelCaches, model_caches};

/// The most devices, requests or draft tokens that a plan takes.
const MAX_COUNT: u64 = 1 << 20;

/// An engine and its rules.
#[derive(Debug)]
pub struct Engine {
    /// The name users type.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// The release whose rules these are.
    pub version: &'static str,
    /// Options that `--set` takes, with their descriptions.
    pub options: &'static [(&'static str, &'static str)],
    plan: fn(&PlanInput, &mut MemoryPlan) -> Result<(), AuditError>,
}

/// Every engine.
pub static ENGINES: &[&Engine] =
    &[&vllm::ENGINE, &sglang::ENGINE, &llama_cpp::ENGINE, &transformers::ENGINE, &tensorrt_llm::ENGINE];

/// Finds an engine by name.
///
/// # Errors
/// There is none of that name.
pub fn engine(name: &str) -> Result<&'static Engine, AuditError> {
    let lower = name.to_lowercase();
    let known = ENGINES.iter().find(|engine| engine.name == lower || engine.aliases.contains(&lower.as_str()));
    known.copied().ok_or_else(|| {
        let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
        AuditError::invalid_argument(name, format!("no such engine; expected one of {}", names.join(", ")))
    })
}

/// The settings of a plan.
#[derive(Clone, Debug, Default)]
pub struct EngineSettings {
    /// Devices that share each layer (tensor parallelism); 0 counts as 1.
    pub tp: u64,
    /// How keys and values are stored; by default as the engine would.
    pub kv_format: Option<CacheFormat>,
    /// How recurrent state is stored; by default as the engine would.
    pub state_dtype: Option<Dtype>,
    /// Bytes of memory of one device.
    pub memory: Option<u64>,
    /// Bytes of all weights together.
    pub weights: Option<u64>,
    /// Context in tokens, with the meaning of the engine's own flag; by default the longest context of the model.
    pub context: Option<u64>,
    /// Concurrent requests; 0 counts as 1.
    pub requests: u64,
    /// Tokens drafted by speculative decoding.
    pub speculative: u64,
    /// The engine's release, if older than the one whose rules are the default.
    pub version: Option<String>,
    /// Plan the layers that the engine supports and leave out the others.
    pub skip_unsupported_layers: bool,
    /// The engine's own options, by name.
    pub options: Vec<(String, String)>,
}

/// A number that the engine logs or that follows from its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineMetric {
    /// Its name, as close to the engine's log line as possible.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The rule it follows.
    pub rule: &'static str,
}

/// The memory that an engine allocates for a model, and the context and requests that fit.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlan {
    /// The model's name.
    pub model: String,
    /// The engine's name.
    pub engine: &'static str,
    /// The release whose rules were used.
    pub version: String,
    /// Context in tokens, with the meaning of the engine's own flag.
    pub context: u64,
    /// Concurrent requests.
    pub requests: u64,
    /// Devices that share each layer.
    pub tp: u64,
    /// The format of keys and values.
    pub kv_dtype: &'static str,
    /// The format of recurrent state.
    pub state_dtype: &'static str,
    /// Tokens in a block of the KV cache; nothing where there are no blocks.
    pub block_tokens: Option<u64>,
    /// Bytes of a page or block: of one layer in vLLM, of all layers where the engine allocates them together (SGLang, TensorRT-LLM).
    pub page_bytes: Option<u64>,
    /// Bytes that each further token takes once the windows are full.
    pub bytes_per_token: Option<u64>,
    /// Bytes that one request of `context` tokens takes.
    pub bytes_per_request: Option<u64>,
    /// Bytes of keys and values outside windows at the context, for all requests.
    pub kv_bytes: Option<u64>,
    /// Bytes of windows and chunks.
    pub window_bytes: Option<u64>,
    /// Bytes of recurrent state and short convolutions.
    pub state_bytes: Option<u64>,
    /// The sum of the three.
    pub cache_bytes: Option<u64>,
    /// Bytes of memory of one device.
    pub memory_bytes: Option<u64>,
    /// Bytes of weights on one device.
    pub weight_bytes: Option<u64>,
    /// Bytes left for the cache on one device.
    pub available_bytes: Option<u64>,
    /// Tokens that fit into `available_bytes`, as the engine counts them.
    pub tokens_fit: Option<u64>,
    /// Requests of `context` tokens that fit.
    pub requests_fit: Option<u64>,
    /// The longest context at which `requests` requests fit.
    pub context_fit: Option<u64>,
    /// Further numbers, by the engine's own names.
    pub metrics: Vec<EngineMetric>,
    /// Flags to start the engine with.
    pub flags: Vec<String>,
    /// Assumptions behind the numbers.
    pub assumptions: Vec<String>,
    /// Why numbers are missing; empty when all are known.
    pub unknown_reasons: Vec<String>,
}

impl MemoryPlan {
    /// The value of a metric.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    fn add_metric(&mut self, name: &'static str, value: f64, unit: &'static str, rule: &'static str) {
        self.metrics.push(EngineMetric { name, value, unit, rule });
    }

    fn add_assumption(&mut self, assumption: impl Into<String>) {
        let assumption = assumption.into();
        if !self.assumptions.contains(&assumption) {
            self.assumptions.push(assumption);
        }
    }

    fn set_bytes(&mut self, bytes: CacheBreakdown) {
        (self.kv_bytes, self.window_bytes, self.state_bytes) = (Some(bytes.kv), Some(bytes.window), Some(bytes.state));
        self.cache_bytes = Some(bytes.total());
    }
}

/// Bytes of the three parts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CacheBreakdown {
    kv: u64,
    window: u64,
    state: u64,
}

impl CacheBreakdown {
    fn total(self) -> u64 {
        self.kv.saturating_add(self.window).saturating_add(self.state)
    }
}

/// The input of an engine's rules: the model, the settings and their defaults.
struct PlanInput<'a> {
    audit: &'a Audit,
    caches: ModelCaches,
    settings: &'a EngineSettings,
    engine: &'static Engine,
    tp: u64,
    context: u64,
    requests: u64,
}

impl PlanInput<'_> {
    /// The limit of requests to pass to the engine; none where the memory is given and no number of requests, because then
    /// as many run as fit.
    fn request_limit(&self) -> Option<u64> {
        (self.requests > 1 || self.settings.memory.is_none()).then_some(self.requests)
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.settings.options.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// An engine option that is a whole number or a size.
    fn option_number(&self, name: &str) -> Result<Option<u64>, AuditError> {
        self.option(name).map(crate::parse_bytes).transpose()
    }

    /// An engine option that is a fraction from 0 to 1.
    fn option_fraction(&self, name: &str) -> Result<Option<f64>, AuditError> {
        let parse = |text: &str| {
            let fraction =
                text.parse::<f64>().ok().filter(|fraction| (0.0..=1.0).contains(fraction) && *fraction > 0.0);
            fraction.ok_or_else(|| {
                AuditError::invalid_argument(text, format!("`{name}` is a fraction above 0 and at most 1"))
            })
        };
        self.option(name).map(parse).transpose()
    }

    fn option_flag(&self, name: &str, default: bool) -> Result<bool, AuditError> {
        match self.option(name) {
            None => Ok(default),
            Some("true" | "1" | "on" | "yes") => Ok(true),
            Some("false" | "0" | "off" | "no") => Ok(false),
            Some(text) => Err(AuditError::invalid_argument(text, format!("`{name}` is true or false"))),
        }
    }

    /// Bytes of weights on one device.
    fn weight_bytes(&self) -> Option<u64> {
        let total = self.settings.weights.or(self.audit.parameters.map(|count| count.total.saturating_mul(2)))?;
        Some(total.div_ceil(self.tp))
    }

    /// Whether the engine's release is older than `major.minor.patch`; a release candidate is older than its release.
    fn is_older_than(&self, release: [u64; 3]) -> Result<bool, AuditError> {
        let Some(text) = &self.settings.version else { return Ok(false) };
        let version = parse_version(text)?;
        Ok(version < (release, u64::MAX))
    }
}

/// The three numbers of a release, and the number of its release candidate (`u64::MAX` for the release itself).
fn parse_version(text: &str) -> Result<([u64; 3], u64), AuditError> {
    let version_error = || AuditError::invalid_argument(text, "a release such as 0.19.1 or 0.20.1rc1".to_owned());
    let (numbers, candidate) = match text.split_once("rc") {
        Some((numbers, candidate)) => (numbers, candidate.parse().map_err(|_| version_error())?),
        None => (text, u64::MAX),
    };
    let mut release = [0; 3];
    for (index, number) in numbers.trim_start_matches('v').split('.').enumerate() {
        *release.get_mut(index).ok_or_else(version_error)? = number.parse().map_err(|_| version_error())?;
    }
    Ok((release, candidate))
}

/// Plans the memory of a model under an engine.
///
/// # Errors
/// A setting is out of range or not one of the engine's, or heads cannot be divided over the devices. A model whose
/// layers are not all known is no error: see [`MemoryPlan::unknown_reasons`].
pub fn plan(audit: &Audit, engine: &'static Engine, settings: &EngineSettings) -> Result<MemoryPlan, AuditError> {
    check_settings(engine, settings)?;
    let context = settings.context.or(audit.max_context).unwrap_or(crate::DEFAULT_CONTEXT);
    let tp = settings.tp.max(1);
    let input = PlanInput {
        audit,
        caches: model_caches(audit),
        settings,
        engine,
        tp,
        context,
        requests: settings.requests.max(1),
    };
    let mut plan = empty_plan(&input);
    if settings.context.is_none() {
        plan.add_assumption(match audit.max_context {
            Some(_) => "The context is the longest the config names.".to_owned(),
            None => format!("The config names no longest context: {} tokens.", crate::DEFAULT_CONTEXT),
        });
    }
    if let (None, Some(count)) = (settings.weights, audit.parameters) {
        let left_out = if count.exact { "" } else { "; biases, norms and gates of this class are left out" };
        plan.add_assumption(format!("{} weights of two bytes, counted from the config{left_out}.", count.total));
    }
    plan.unknown_reasons.extend(audit.unknown_reasons.iter().cloned());
    let all_layers_known = audit.capacity.is_some() && plan.unknown_reasons.is_empty();
    plan.unknown_reasons.extend(input.caches.unsupported_reasons.iter().cloned());
    input.caches.check_tensor_parallel(tp)?;
    if all_layers_known && (plan.unknown_reasons.is_empty() || settings.skip_unsupported_layers) {
        (engine.plan)(&input, &mut plan)?;
    }
    if settings.skip_unsupported_layers && !plan.unknown_reasons.is_empty() && all_layers_known {
        plan.add_assumption("Layers that the engine's rules do not cover are left out: every number is too low.");
    }
    Ok(plan)
}

fn check_settings(engine: &Engine, settings: &EngineSettings) -> Result<(), AuditError> {
    for (name, value) in [("tp", settings.tp), ("requests", settings.requests), ("speculative", settings.speculative)] {
        if value > MAX_COUNT {
            return Err(AuditError::invalid_argument(&value.to_string(), format!("`{name}` is at most {MAX_COUNT}")));
        }
    }
    if settings.memory == Some(0) {
        return Err(AuditError::invalid_argument("0", "a device with no memory holds no cache"));
    }
    if let Some(context) = settings.context.filter(|context| !(1..=crate::MAX_CONTEXT).contains(context)) {
        return Err(AuditError::invalid_argument(
            &context.to_string(),
            format!("a context has 1 to {} tokens", crate::MAX_CONTEXT),
        ));
    }
    if let Some(version) = &settings.version {
        parse_version(version)?;
    }
    for (name, _) in &settings.options {
        if !engine.options.iter().any(|(known, _)| known == name) {
            let names: Vec<&str> = engine.options.iter().map(|(known, _)| *known).collect();
            return Err(AuditError::invalid_argument(
                name,
                format!("no option of {}; it has {}", engine.name, names.join(", ")),
            ));
        }
    }
    Ok(())
}

fn empty_plan(input: &PlanInput) -> MemoryPlan {
    MemoryPlan {
        model: input.audit.model.clone(),
        engine: input.engine.name,
        version: input.settings.version.clone().unwrap_or_else(|| input.engine.version.to_owned()),
        context: input.context,
        requests: input.requests,
        tp: input.tp,
        kv_dtype: input.settings.kv_format.map_or("bf16", |format| format.name),
        state_dtype: input.settings.state_dtype.map_or("fp32", |dtype| dtype.name),
        block_tokens: None,
        page_bytes: None,
        bytes_per_token: None,
        bytes_per_request: None,
        kv_bytes: None,
        window_bytes: None,
        state_bytes: None,
        cache_bytes: None,
        memory_bytes: input.settings.memory,
        weight_bytes: input.weight_bytes(),
        available_bytes: None,
        tokens_fit: None,
        requests_fit: None,
        context_fit: None,
        metrics: Vec::new(),
        flags: Vec::new(),
        assumptions: Vec::new(),
        unknown_reasons: Vec::new(),
    }
}

/// The largest number from 0 to `max` for which `fits` holds, given that it holds for all smaller ones.
fn largest_fitting(max: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, max);
    while low < high {
        let midpoint = low + (high - low).div_ceil(2);
        if fits(midpoint) { low = midpoint } else { high = midpoint - 1 }
    }
    low
}

/// `number` rounded up to a multiple of `multiple`.
fn round_up(number: u64, multiple: u64) -> u64 {
    number.div_ceil(multiple).saturating_mul(multiple)
}

/// Bytes of `elements` numbers.
fn element_bytes(elements: u64, dtype: Dtype) -> u64 {
    u64::try_from((u128::from(elements) * u128::from(dtype.bits)).div_ceil(8)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_version_orders_releases() {
        assert!(parse_version("0.20.1rc1").unwrap() < parse_version("0.20.1").unwrap());
        assert!(parse_version("0.9").unwrap() < parse_version("0.10.0").unwrap());
        assert!(parse_version("v1.2.3").is_ok());
        assert!(parse_version("new").is_err());
        assert!(parse_version("1.2.3.4").is_err());
    }

    #[test]
    fn largest_finds_the_last_number_that_fits() {
        assert_eq!(largest_fitting(100, |n| n * n <= 50), 7);
        assert_eq!(largest_fitting(100, |_| true), 100);
        assert_eq!(largest_fitting(100, |n| n == 0), 0);
    }
}
