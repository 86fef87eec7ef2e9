//! `rung model show`: the layers, weights and states of a checkpoint or a stack.
//!
//! ```text
//! rung model show model.safetensors                            or the folder of a run or a construction
//! rung model show FOLDER                                       or model.gguf: an external checkpoint
//! rung model show --stack "(gdn*3 full)*2" --heads 4 --head-dim 16 --tensors
//! rung model show model.safetensors --stack "linear full"      rejects a file that is not of this stack
//! ```
//!
//! Of a single file only the header is read; the folder of a run, a construction or an external checkpoint is opened with its weights. Layers
//! and components come from the names of tensors. Mixers and states come from the stack: from
//! `--stack`, or else from the metadata of the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_nn::families;
use rung_nn::inventory::ComponentSize;
use rung_nn::network::files;
use rung_nn::{FeedForwardConfig, InputConfig, Inventory, ModelConfig, NormConfig, Positions, Provenance, inspect};
use rung_theory::stack::{Layer, Mixer, Plan};
use serde_json::{Value, json};

use super::checkpoint;
use super::stack::SizeOptions;
use crate::output::{print, print_json, with_commas};

/// Show the layers, weights and states of a checkpoint or stack.
#[derive(Debug, clap::Args)]
pub struct ModelCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show layers, mixers, weights by component, states and bytes.
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Safetensors file, directory of a run or a construction, Hugging Face directory, or GGUF file.
    path: Option<PathBuf>,
    /// Stack such as `(gdn*3 full)*2`; with a file, the stack it must have.
    #[arg(long)]
    stack: Option<String>,
    /// List every tensor.
    #[arg(long)]
    tensors: bool,
    #[command(flatten)]
    sizes: SizeOptions,
    #[command(flatten)]
    network: NetworkOptions,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Settings of a network beside its stack.
#[derive(Debug, clap::Args)]
struct NetworkOptions {
    /// Vocabulary size.
    #[arg(long, default_value_t = 256, value_name = "N", help_heading = "Network")]
    vocabulary: usize,
    /// Number of output classes [default: the vocabulary size]
    #[arg(long, value_name = "N", help_heading = "Network")]
    classes: Option<usize>,
    /// Task whose tokens and classes to use instead, such as `mqar`.
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["vocabulary", "classes"], help_heading = "Network")]
    task: Option<String>,
    /// Kind of norm.
    #[arg(long, value_enum, default_value_t = Norm::Rms, help_heading = "Network")]
    norm: Norm,
    /// Kind of feed-forward network.
    #[arg(long = "channel", value_enum, default_value_t = FeedForward::Mlp, value_name = "CHANNEL", help_heading = "Network")]
    feed_forward: FeedForward,
    /// Hidden width of the feed-forward network.
    #[arg(long, value_name = "N", help_heading = "Network")]
    hidden: Option<usize>,
    /// Learned position embeddings for sequences of this length.
    #[arg(long, value_name = "N", help_heading = "Network")]
    learned_positions: Option<usize>,
    /// Tie the input and output embeddings.
    #[arg(long, help_heading = "Network")]
    tied: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Norm {
    Rms,
    Layer,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FeedForward {
    Mlp,
    Glu,
    None,
}

impl ModelCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The file or the stack cannot be read, or they do not fit each other.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let Action::Show(show) = &self.action;
        show.run()
    }
}

impl NetworkOptions {
    fn config(&self) -> anyhow::Result<ModelConfig> {
        let (input, classes) = match &self.task {
            Some(spec) => {
                let task = rung_theory::task::parse(spec).with_context(|| format!("--task {spec}"))?;
                (InputConfig::Fields(task.fields()), task.classes() as usize)
            }
            None => (InputConfig::Vocabulary(self.vocabulary), self.classes.unwrap_or(self.vocabulary)),
        };
        Ok(ModelConfig {
            input,
            classes,
            norm: match self.norm {
                Norm::Rms => NormConfig::Rms,
                Norm::Layer => NormConfig::Layer,
            },
            feed_forward: match self.feed_forward {
                FeedForward::Mlp => FeedForwardConfig::Mlp { hidden: self.hidden },
                FeedForward::Glu => FeedForwardConfig::Glu { hidden: self.hidden },
                FeedForward::None => FeedForwardConfig::None,
            },
            positions: self.learned_positions.map_or(Positions::None, |length| Positions::Learned { length }),
            tied_unembedding: self.tied,
            ..ModelConfig::default()
        })
    }
}

/// The weights file in the directory of a run or a construction, and its plan; otherwise the path itself.
fn find_weights_file(path: &Path) -> anyhow::Result<(PathBuf, Option<Plan>)> {
    let candidates = [files::RUN_WEIGHTS, files::CONSTRUCTION_WEIGHTS].map(|name| path.join(name));
    match candidates.into_iter().find(|file| file.is_file()) {
        Some(file) => Ok((file, Some(rung_nn::Network::<f32>::open(path)?.plan))),
        None => Ok((path.to_owned(), None)),
    }
}

/// A model as it is printed.
struct ModelSummary {
    title: String,
    inventory: Inventory,
    plan: Option<Plan>,
    layers: BTreeMap<usize, Vec<ComponentSize>>,
    /// Components that are not part of a layer, such as embeddings.
    non_layer_components: Vec<ComponentSize>,
}

impl Show {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let summary = self.read()?;
        if self.json {
            print_json(&summary.to_json(self.tensors))?;
        } else {
            print(&summary.text(self.tensors)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn read(&self) -> anyhow::Result<ModelSummary> {
        let given_plan =
            self.stack.as_deref().map(|stack| self.sizes.resolve(stack).map(|stack| stack.plan)).transpose()?;
        let expected = match &given_plan {
            Some(plan) => Some(Inventory::from_plan(&self.network.config()?, plan)?),
            None => None,
        };
        let (title, inventory, plan) = match (&self.path, expected) {
            (Some(path), None) if families::is_checkpoint(path) => {
                let checkpoint = checkpoint::open(path)?;
                let family =
                    if let Provenance::Checkpoint { family, .. } = checkpoint.provenance { family } else { "" };
                let title = format!("{}, family {family}", path.display());
                (title, Inventory::from_weights(&checkpoint.weights), Some(checkpoint.plan))
            }
            (Some(path), expected) => {
                let (path, run_plan) = find_weights_file(path)?;
                let inventory = inspect(&path)?;
                if let Some(expected) = expected {
                    inventory.check_equal(&path, &expected).context("the file is not of this stack")?;
                }
                let metadata_plan =
                    inventory.plan().transpose().with_context(|| format!("{}: its stack", path.display()))?;
                (path.display().to_string(), inventory, given_plan.or(run_plan).or(metadata_plan))
            }
            (None, Some(expected)) => (self.stack.clone().unwrap_or_default(), expected, given_plan),
            (None, None) => bail!("give a safetensors file, or --stack"),
        };
        let (layers, non_layer_components) = (inventory.layers(), inventory.non_layer_components());
        Ok(ModelSummary { title, inventory, plan, layers, non_layer_components })
    }
}

impl ModelSummary {
    /// The layer of the plan with this index.
    fn plan_layer(&self, layer: usize) -> Option<&Layer> {
        self.plan.as_ref().and_then(|plan| plan.layers.get(layer))
    }

    fn text(&self, tensors: bool) -> anyhow::Result<String> {
        let mut text = format!("{}\n", self.title);
        if let Some(plan) = &self.plan {
            writeln!(text, "  stack       {}", plan.mixer_names())?;
        }
        let (elements, bytes) = (with_commas(self.inventory.element_count()), with_commas(self.inventory.bytes()));
        writeln!(text, "  parameters  {elements} in {} tensors, {bytes} bytes", self.inventory.tensors.len())?;
        if let Some(plan) = &self.plan {
            let (state, per_token) = plan.layers.iter().map(state_elements).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            writeln!(text, "  memory      {}", state_text(state, per_token))?;
        }
        for component in &self.non_layer_components {
            writeln!(text, "  {:18} {:>14}", component.name, with_commas(component.element_count))?;
        }
        // Consecutive equal layers share a line.
        let mut layers = self.layers.iter().peekable();
        while let Some((&first, components)) = layers.next() {
            let mut last = first;
            while let Some((&next, _)) = layers.next_if(|(next, others)| {
                **next == last + 1 && *others == components && self.plan_layer(**next) == self.plan_layer(first)
            }) {
                last = next;
            }
            let name = if first == last { format!("layer {first}") } else { format!("layers {first}-{last}, each") };
            let total: u128 = components.iter().map(|component| component.element_count).sum();
            let component_texts = components
                .iter()
                .map(|component| format!("{} {}", component.name, with_commas(component.element_count)));
            writeln!(
                text,
                "  {name:18} {:>14}  {}",
                with_commas(total),
                component_texts.collect::<Vec<_>>().join(", ")
            )?;
            if let Some(layer) = self.plan_layer(first) {
                let mixers: Vec<String> = layer.mixers.iter().map(ToString::to_string).collect();
                let (elements, per_token) = state_elements(layer);
                writeln!(text, "    {}: {}", mixers.join(" + "), state_text(elements, per_token))?;
            }
        }
        if self.plan.is_none() {
            writeln!(text, "  this file does not name its mixers; --stack gives them")?;
        }
        if tensors {
            for tensor in &self.inventory.tensors {
                writeln!(text, "  {:48} {:5} {:?}", tensor.name, tensor.dtype, tensor.shape)?;
            }
        }
        Ok(text)
    }

    fn to_json(&self, tensors: bool) -> Value {
        let components_json = |components: &[ComponentSize]| -> Vec<Value> {
            let component = |component: &ComponentSize| json!({"name": component.name, "tensors": component.tensor_count, "parameters": integer_json(component.element_count)});
            components.iter().map(component).collect()
        };
        let layer = |(&index, components): (&usize, &Vec<ComponentSize>)| {
            let plan_layer = self.plan_layer(index);
            json!({
                "layer": index,
                "mixers": plan_layer.map(|layer| layer.mixers.iter().map(ToString::to_string).collect::<Vec<_>>()),
                "parameters": integer_json(components.iter().map(|component| component.element_count).sum()),
                "components": components_json(components),
                "state_elements": plan_layer.map(|layer| integer_json(state_elements(layer).0)),
                "cache_elements_per_token": plan_layer.map(|layer| integer_json(state_elements(layer).1)),
            })
        };
        let mut fields = json!({
            "model": self.title,
            "stack": self.plan.as_ref().map(|plan| plan.to_stack().to_string()),
            "width": self.plan.as_ref().map(|plan| plan.width),
            "parameters": integer_json(self.inventory.element_count()),
            "bytes": self.inventory.bytes(),
            "non_layer_components": components_json(&self.non_layer_components),
            "layers": self.layers.iter().map(layer).collect::<Vec<_>>(),
            "metadata": self.inventory.metadata,
        });
        if tensors {
            let tensor = |tensor: &rung_nn::inventory::TensorEntry| json!({"name": tensor.name, "shape": tensor.shape, "type": tensor.dtype, "bytes": tensor.bytes});
            fields["tensors"] = self.inventory.tensors.iter().map(tensor).collect();
        }
        fields
    }
}

/// Elements of a layer's recurrent state, and elements that its cache adds per token.
fn state_elements(layer: &Layer) -> (u128, u128) {
    let facts = layer.mixers.iter().map(Mixer::facts);
    facts.fold((0, 0), |(state, per_token), facts| {
        (state + facts.state_size() + facts.input_conv_state, per_token + facts.cache_growth())
    })
}

fn state_text(elements: u128, cache_per_token: u128) -> String {
    let (state, cache) = (
        format!("state of {} elements", with_commas(elements)),
        format!("KV cache of {} elements per token", with_commas(cache_per_token)),
    );
    match (elements, cache_per_token) {
        (_, 0) => state,
        (0, _) => cache,
        _ => format!("{state}, {cache}"),
    }
}

/// An integer as JSON: as a string if it does not fit into 64 bits.
fn integer_json(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value.to_string()), |value| json!(value))
}
