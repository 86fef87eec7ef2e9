//! The stack grammar, and its printer.
//!
//! ```text
//! stack  = item item ..
//! item   = layer | ( stack )          each optionally followed by *count
//! layer  = mixer | mixer+mixer+..     side by side
//! mixer  = name | name{option=value,..}
//! ```
//!
//! A [`Stack`] is the text as a tree: it prints back what it read, and nothing is expanded until its length is
//! known, so `((full*99999)*99999)*99999` costs nothing. [`Stack::compress`] goes the other way, from a long list of
//! layers to a short text, which is how stacks that came from a model's config are shown.

use std::fmt;

use super::StackError;
use crate::spec::{Scanner, Spec};

/// Parentheses may nest this deep: more than anyone means, far less than a thread's stack holds.
const MAX_DEPTH: usize = 64;

/// A stack as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack(pub Vec<Item>);

/// A layer or group, repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What is repeated.
    pub body: LayerOrGroup,
    /// How often, at least once.
    pub times: u64,
}

/// What can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerOrGroup {
    /// One layer of one mixer, or of several side by side.
    Layer(Vec<Spec>),
    /// A stack in parentheses.
    Group(Stack),
}

impl Stack {
    /// Reads a stack.
    ///
    /// # Errors
    /// The text does not follow the grammar, or holds no layer.
    pub fn parse(text: &str) -> Result<Self, StackError> {
        let mut scanner = Scanner::new(text);
        let stack = items(&mut scanner, 0)?;
        if scanner.peek().is_some() {
            return Err(scanner.error("a mixer, `(`, `*` or the end").into());
        }
        if stack.0.is_empty() { Err(StackError::Empty) } else { Ok(stack) }
    }

    /// How many layers it stands for, as long as that fits 128 bits.
    pub fn layers(&self) -> Option<u128> {
        self.0.iter().try_fold(0_u128, |sum, item| {
            let body = match &item.body {
                LayerOrGroup::Layer(_) => 1,
                LayerOrGroup::Group(group) => group.layers()?,
            };
            sum.checked_add(body.checked_mul(u128::from(item.times))?)
        })
    }

    /// Calls `visit` with every layer in order. Ask [`Stack::layers`] first how many that will be.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub fn for_each_layer<E>(&self, visit: &mut impl FnMut(&[Spec]) -> Result<(), E>) -> Result<(), E> {
        for item in &self.0 {
            for _ in 0..item.times {
                match &item.body {
                    LayerOrGroup::Layer(specs) => visit(specs)?,
                    LayerOrGroup::Group(group) => group.for_each_layer(visit)?,
                }
            }
        }
        Ok(())
    }

    /// The shortest text we find for a list of layers: at each place the repetition that covers most.
    pub fn compress(layers: &[Vec<Spec>]) -> Self {
        const LONGEST_PERIOD: usize = 24;
        let mut items = Vec::new();
        let mut at = 0;
        while at < layers.len() {
            let rest = &layers[at..];
            let repeats =
                |period: usize| rest.chunks_exact(period).take_while(|chunk| *chunk == &rest[..period]).count();
            let candidates = (1..=LONGEST_PERIOD.min(rest.len())).map(|period| (period, repeats(period)));
            // The longest cover wins; among equals the shortest period. One copy is no repetition.
            let (period, times) = candidates
                .filter(|&(period, times)| period == 1 || times > 1)
                .max_by_key(|&(period, times)| (period * times, std::cmp::Reverse(period)))
                .unwrap_or((1, 1));
            let body = match period {
                1 => LayerOrGroup::Layer(rest[0].clone()),
                _ => LayerOrGroup::Group(Self::compress(&rest[..period])),
            };
            items.push(Item { body, times: times as u64 });
            at += period * times;
        }
        Self(items)
    }
}

fn items(scanner: &mut Scanner<'_>, depth: usize) -> Result<Stack, StackError> {
    let mut stack = Vec::new();
    loop {
        scanner.skip_space();
        let body = match scanner.peek() {
            None | Some(')') => return Ok(Stack(stack)),
            Some('(') if depth == MAX_DEPTH => {
                return Err(scanner.error(&format!("parentheses nested at most {MAX_DEPTH} deep")).into());
            }
            Some('(') => {
                scanner.take('(');
                let inner = items(scanner, depth + 1)?;
                if inner.0.is_empty() {
                    return Err(scanner.error("a layer").into());
                }
                scanner.require(')')?;
                LayerOrGroup::Group(inner)
            }
            Some(_) => LayerOrGroup::Layer(side_by_side(scanner)?),
        };
        let spaced = scanner.skip_space();
        let mut times = 1;
        if scanner.take('*') {
            scanner.skip_space();
            times = scanner.number()?;
            if times == 0 {
                return Err(scanner.error("a repeat count of at least 1 before this").into());
            }
        } else if !spaced && !matches!(scanner.peek(), None | Some('(' | ')')) && matches!(body, LayerOrGroup::Layer(_))
        {
            return Err(scanner.error("a space, `*`, `+`, `{` or the end").into());
        }
        stack.push(Item { body, times });
    }
}

fn side_by_side(scanner: &mut Scanner<'_>) -> Result<Vec<Spec>, StackError> {
    let mut specs = vec![scanner.spec("a mixer such as `full`")?];
    while scanner.take('+') {
        specs.push(scanner.spec("a mixer such as `full`")?);
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
            if item.times != 1 {
                write!(out, "*{}", item.times)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_back_what_it_read() {
        for text in ["full", "linear*3 (full gdn*3)*12", "full+mamba2{heads=8}*2 ((conv full)*2 none)*3", "a-b{c=d}"] {
            assert_eq!(Stack::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Stack::parse(" ( full\tgdn * 3 ) *2(full)").unwrap().to_string(), "(full gdn*3)*2 (full)");
    }

    #[test]
    fn refuses_what_it_cannot_read() {
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
    fn counts_without_expanding() {
        assert_eq!(Stack::parse("((full*99999)*99999)*99999").unwrap().layers(), Some(99_999_u128.pow(3)));
        let huge = format!("{}full{}", "(".repeat(9), ")*99999999".repeat(9));
        assert_eq!(Stack::parse(&huge).unwrap().layers(), None);
    }

    #[test]
    fn compressing_finds_the_period() {
        for text in
            ["(gdn*3 full)*12", "full*3", "(mamba2 full)*2 mamba2", "full gdn kda", "conv*2 (full conv*2)*3 full"]
        {
            let mut layers = Vec::new();
            let collect = &mut |specs: &[Spec]| {
                layers.push(specs.iter().map(|spec| Spec { at: 0, ..spec.clone() }).collect());
                Ok::<(), ()>(())
            };
            Stack::parse(text).unwrap().for_each_layer(collect).unwrap();
            let compressed = Stack::compress(&layers);
            assert_eq!(compressed.layers(), Some(layers.len() as u128));
            assert!(compressed.to_string().len() <= text.len(), "{compressed} for {text}");
        }
    }
}
