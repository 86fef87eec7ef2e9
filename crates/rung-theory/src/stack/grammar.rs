//! The stack grammar, and its printer.
//!
//! ```text
//! stack  = item item ..
//! item   = layer | ( stack )          each optionally followed by *count
//! layer  = mixer | mixer+mixer+..     in parallel
//! mixer  = name | name{option=value,..}
//! ```
//!
//! A [`Stack`] is the syntax tree: printing it gives equivalent text. Repetitions are expanded only after their number is
//! checked, so `((full*99999)*99999)*99999` needs no memory. [`Stack::compress`] converts a list of layers to a short text; it is
//! used to print the stack of a model's config.

use std::fmt;

use super::StackError;
use crate::spec::{Scanner, Spec};

/// The deepest nesting of parentheses: parsing is recursive, and this is far below the limit of a thread's stack.
const MAX_DEPTH: usize = 64;

/// A stack as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack(pub Vec<StackItem>);

/// A layer or group, repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackItem {
    /// What is repeated.
    pub body: LayerOrGroup,
    /// How often, at least once.
    pub repeat_count: u64,
}

/// What can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerOrGroup {
    /// One layer of one mixer, or of several in parallel.
    Layer(Vec<Spec>),
    /// A stack in parentheses.
    Group(Stack),
}

impl Stack {
    /// Parses a stack.
    ///
    /// # Errors
    /// The text does not follow the grammar, or has no layer.
    pub fn parse(text: &str) -> Result<Self, StackError> {
        let mut scanner = Scanner::new(text);
        let stack = parse_items(&mut scanner, 0)?;
        if scanner.peek().is_some() {
            return Err(scanner.error("a mixer, `(`, `*` or the end").into());
        }
        if stack.0.is_empty() { Err(StackError::Empty) } else { Ok(stack) }
    }

    /// The number of layers after expansion; none if it does not fit 128 bits.
    pub fn layer_count(&self) -> Option<u128> {
        self.sum_over_layers(|_| 1)
    }

    /// The number of mixers after expansion, those in parallel included; none if it does not fit 128 bits.
    pub fn mixer_count(&self) -> Option<u128> {
        self.sum_over_layers(|specs| specs.len() as u128)
    }

    fn sum_over_layers(&self, count: fn(&[Spec]) -> u128) -> Option<u128> {
        self.0.iter().try_fold(0_u128, |sum, item| {
            let body = match &item.body {
                LayerOrGroup::Layer(specs) => count(specs),
                LayerOrGroup::Group(group) => group.sum_over_layers(count)?,
            };
            sum.checked_add(body.checked_mul(u128::from(item.repeat_count))?)
        })
    }

    /// Calls `visit` with every layer in order, repetitions expanded. Check [`Stack::layer_count`] first.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub fn for_each_layer<E>(&self, visit: &mut impl FnMut(&[Spec]) -> Result<(), E>) -> Result<(), E> {
        for item in &self.0 {
            for _ in 0..item.repeat_count {
                match &item.body {
                    LayerOrGroup::Layer(specs) => visit(specs)?,
                    LayerOrGroup::Group(group) => group.for_each_layer(visit)?,
                }
            }
        }
        Ok(())
    }

    /// A short stack for a list of layers: greedily, at each layer, the repetition that covers the most layers. `specs` is called once per
    /// repetition, not once per layer, so a million equal layers cost one call.
    pub fn compress<T: PartialEq>(layers: &[T], specs: &dyn Fn(&T) -> Vec<Spec>) -> Self {
        const MAX_PERIOD: usize = 24;
        let mut items = Vec::new();
        let mut start = 0;
        while start < layers.len() {
            let remaining = &layers[start..];
            let repeats = |period: usize| {
                remaining.chunks_exact(period).take_while(|chunk| *chunk == &remaining[..period]).count()
            };
            let candidates = (1..=MAX_PERIOD.min(remaining.len())).map(|period| (period, repeats(period)));
            // The repetition that covers the most layers wins; among equals the shortest period. One copy is no repetition.
            let (period, repeat_count) = candidates
                .filter(|&(period, repeat_count)| period == 1 || repeat_count > 1)
                .max_by_key(|&(period, repeat_count)| (period * repeat_count, std::cmp::Reverse(period)))
                .unwrap_or((1, 1));
            let body = match period {
                1 => LayerOrGroup::Layer(specs(&remaining[0])),
                _ => LayerOrGroup::Group(Self::compress(&remaining[..period], specs)),
            };
            items.push(StackItem { body, repeat_count: repeat_count as u64 });
            start += period * repeat_count;
        }
        Self(items)
    }
}

fn parse_items(scanner: &mut Scanner<'_>, depth: usize) -> Result<Stack, StackError> {
    let mut items = Vec::new();
    loop {
        scanner.skip_space();
        let body = match scanner.peek() {
            None | Some(')') => return Ok(Stack(items)),
            Some('(') if depth == MAX_DEPTH => {
                return Err(scanner.error(&format!("parentheses nested at most {MAX_DEPTH} deep")).into());
            }
            Some('(') => {
                scanner.take('(');
                let inner = parse_items(scanner, depth + 1)?;
                if inner.0.is_empty() {
                    return Err(scanner.error("a layer").into());
                }
                scanner.require(')')?;
                LayerOrGroup::Group(inner)
            }
            Some(_) => LayerOrGroup::Layer(parse_layer(scanner)?),
        };
        let followed_by_space = scanner.skip_space();
        let mut repeat_count = 1;
        if scanner.take('*') {
            scanner.skip_space();
            repeat_count = scanner.parse_number()?;
            if repeat_count == 0 {
                return Err(scanner.error("a repeat count of at least 1 before this").into());
            }
        } else if !followed_by_space
            && !matches!(scanner.peek(), None | Some('(' | ')'))
            && matches!(body, LayerOrGroup::Layer(_))
        {
            return Err(scanner.error("a space, `*`, `+`, `{` or the end").into());
        }
        items.push(StackItem { body, repeat_count });
    }
}

/// One mixer, or several joined by `+`.
fn parse_layer(scanner: &mut Scanner<'_>) -> Result<Vec<Spec>, StackError> {
    let mut specs = vec![scanner.parse_spec("a mixer such as `full`")?];
    while scanner.take('+') {
        specs.push(scanner.parse_spec("a mixer such as `full`")?);
    }
    Ok(specs)
}

impl fmt::Display for Stack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str(" ")?;
            }
            match &item.body {
                LayerOrGroup::Layer(specs) => {
                    let specs: Vec<String> = specs.iter().map(Spec::to_string).collect();
                    out.write_str(&specs.join("+"))?;
                }
                LayerOrGroup::Group(group) => write!(out, "({group})")?,
            }
            if item.repeat_count != 1 {
                write!(out, "*{}", item.repeat_count)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_prints_the_parsed_text() {
        for text in ["full", "linear*3 (full gdn*3)*12", "full+mamba2{heads=8}*2 ((conv full)*2 none)*3", "a-b{c=d}"] {
            assert_eq!(Stack::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Stack::parse(" ( full\tgdn * 3 ) *2(full)").unwrap().to_string(), "(full gdn*3)*2 (full)");
    }

    #[test]
    fn parse_rejects_text_outside_of_the_grammar() {
        let deep = "(".repeat(100_000);
        for text in [
            "",
            " ",
            "()",
            "(full",
            "full)",
            "full*",
            "full*0",
            "*3",
            "full*-1",
            "full++gdn",
            "full,gdn",
            deep.as_str(),
        ] {
            assert!(Stack::parse(text).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn layers_are_counted_without_expanding() {
        assert_eq!(Stack::parse("((full*99999)*99999)*99999").unwrap().layer_count(), Some(99_999_u128.pow(3)));
        let huge = format!("{}full{}", "(".repeat(9), ")*99999999".repeat(9));
        assert_eq!(Stack::parse(&huge).unwrap().layer_count(), None);
    }

    #[test]
    fn compress_finds_the_period() {
        for text in
            ["(gdn*3 full)*12", "full*3", "(mamba2 full)*2 mamba2", "full gdn kda", "conv*2 (full conv*2)*3 full"]
        {
            let mut layers: Vec<Vec<Spec>> = Vec::new();
            let collect = &mut |specs: &[Spec]| {
                layers.push(specs.iter().map(|spec| Spec { offset: 0, ..spec.clone() }).collect());
                Ok::<(), ()>(())
            };
            Stack::parse(text).unwrap().for_each_layer(collect).unwrap();
            let compressed = Stack::compress(&layers, &Vec::clone);
            assert_eq!(compressed.layer_count(), Some(layers.len() as u128));
            assert!(compressed.to_string().len() <= text.len(), "{compressed} for {text}");
        }
    }
}
