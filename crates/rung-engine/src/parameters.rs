//! The weights of a model: names, shapes, and one flat array of values.
//!
//! A model has [`Parameter`] handles; the values are in one array of [`Parameters`], so that the optimiser is one loop, the
//! gradient is one array of the same length, and the threads of a step share the values by reference.
//!
//! ```
//! use rung_engine::Parameters;
//!
//! let mut weights = Parameters::<f32>::new();
//! let gain = weights.add("norm.weight", &[4], vec![1.0; 4]).without_decay().id();
//! assert_eq!(weights.get(gain), &[1.0; 4]);
//! ```

use crate::scalar::Scalar;
use crate::shape::Shape;
use std::ops::Range;
use std::sync::Arc;

/// A handle to one weight of a [`Parameters`] store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parameter(pub(crate) u32);

/// What a weight is used for, independent of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// None of the following.
    #[default]
    Other,
    /// A table of token vectors.
    Embedding,
    /// A table of position vectors.
    Position,
    /// The gain of a norm on the residual stream.
    ResidualNorm,
    /// A projection to queries, or to RWKV's receptance.
    Query,
    /// A projection to keys.
    Key,
    /// A projection to values.
    Value,
    /// A projection to the gate of a mixer's output.
    Gate,
    /// A convolution over the residual stream, before a mixer's projections.
    InputConvolution,
    /// A projection that is added to the residual stream.
    Output,
    /// A bias that is added to the residual stream.
    OutputBias,
    /// The matrix that maps the last layer's output to logits.
    Unembedding,
}

/// Name, shape and other metadata of one weight.
#[derive(Clone, Debug)]
pub struct ParameterEntry {
    /// The name a checkpoint uses, such as `layers.0.mixer.q_proj.weight`.
    pub name: String,
    /// What the weight is used for.
    pub role: Role,
    /// Extents of the weight.
    pub shape: Shape,
    /// Whether weight decay applies.
    pub decay: bool,
    /// Where the values lie in the flat array.
    pub range: Range<usize>,
}

/// All weights of a model, by name and in one flat array.
#[derive(Clone, Debug, Default)]
pub struct Parameters<S> {
    values: Arc<Vec<S>>,
    entries: Vec<ParameterEntry>,
}

/// A weight just added, to set its metadata and take its handle with [`id`](NewParameter::id).
pub struct NewParameter<'a> {
    entry: &'a mut ParameterEntry,
    id: Parameter,
}

impl NewParameter<'_> {
    /// The handle of the weight.
    pub fn id(&self) -> Parameter {
        self.id
    }

    /// Exempts the weight from weight decay, as usual for biases, norm gains and gate offsets.
    #[must_use]
    pub fn without_decay(self) -> Self {
        self.entry.decay = false;
        self
    }

    /// Sets what the weight is used for.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        self.entry.role = role;
        self
    }
}

impl<S: Scalar> Parameters<S> {
    /// An empty store.
    pub fn new() -> Self {
        Self { values: Arc::new(Vec::new()), entries: Vec::new() }
    }

    /// Reserves capacity for `count` more numbers, so that adding weights does not copy the array.
    pub fn reserve(&mut self, count: usize) {
        Arc::make_mut(&mut self.values).reserve_exact(count);
    }

    /// Adds a weight with its initial values.
    ///
    /// # Panics
    /// If the number of values is not the size of the shape, or another weight has the name.
    pub fn add(&mut self, name: impl Into<String>, shape: &[usize], values: Vec<S>) -> NewParameter<'_> {
        let (name, shape) = (name.into(), Shape::new(shape));
        assert_eq!(values.len(), shape.size(), "values of {name}, of shape {shape}");
        assert!(self.find(&name).is_none(), "two weights are named {name}");
        let start = self.values.len();
        Arc::make_mut(&mut self.values).extend(values);
        self.entries.push(ParameterEntry {
            name,
            role: Role::Other,
            shape,
            decay: true,
            range: start..self.values.len(),
        });
        let id = Parameter(self.entries.len() as u32 - 1);
        NewParameter { entry: &mut self.entries[id.0 as usize], id }
    }

    /// The weight with this name.
    pub fn find(&self, name: &str) -> Option<Parameter> {
        self.entries.iter().position(|entry| entry.name == name).map(|index| Parameter(index as u32))
    }

    /// The first weight with this role whose name starts with `scope` and a dot, such as `layers.0.mixer` and `.q_proj.weight`.
    pub fn find_role(&self, scope: &str, role: Role) -> Option<Parameter> {
        self.within(scope).find(|(_, entry)| entry.role == role).map(|(id, _)| id)
    }

    /// The weights whose names start with `scope` and a dot.
    pub fn within(&self, scope: &str) -> impl Iterator<Item = (Parameter, &ParameterEntry)> {
        let inside = move |name: &str| name.strip_prefix(scope).is_some_and(|suffix| suffix.starts_with('.'));
        self.entries().filter(move |(_, entry)| inside(&entry.name))
    }

    /// All weights, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = (Parameter, &ParameterEntry)> {
        self.entries.iter().enumerate().map(|(index, entry)| (Parameter(index as u32), entry))
    }

    /// The metadata of a weight.
    pub fn entry(&self, id: Parameter) -> &ParameterEntry {
        &self.entries[id.0 as usize]
    }

    /// The values of a weight.
    pub fn get(&self, id: Parameter) -> &[S] {
        &self.values[self.entry(id).range.clone()]
    }

    /// The values of a weight, to change.
    pub fn get_mut(&mut self, id: Parameter) -> &mut [S] {
        let range = self.entry(id).range.clone();
        &mut self.flat_mut()[range]
    }

    /// All values in one array.
    pub fn flat(&self) -> &[S] {
        &self.values
    }

    /// All values in one array, to change. Copies them first if a tensor still refers to them.
    pub fn flat_mut(&mut self) -> &mut [S] {
        Arc::make_mut(&mut self.values).as_mut_slice()
    }

    /// Total number of elements of all weights.
    pub fn size(&self) -> usize {
        self.values.len()
    }

    /// Number of weights.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no weights.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Range of a weight in the flat array, and whether weight decay applies.
    pub(crate) fn range_and_decay(&self, index: usize) -> (Range<usize>, bool) {
        (self.entries[index].range.clone(), self.entries[index].decay)
    }

    /// A reference to the flat array of all values.
    pub(crate) fn share_values(&self) -> Arc<Vec<S>> {
        Arc::clone(&self.values)
    }
}
