//! Function composition as users write it: `funccomp{hops=2,m=4,n=[2]}`.

use std::fmt;

use super::{EntryOrder, FuncComp, IdScope, MAX_HOPS, Order};
use crate::spec::SpecValue;
use crate::task::options::{Options, yes_no};
use crate::task::{MAX_TOKENS, Task as _, TaskError, listed_numbers};

const ORDERS: [(&str, Order); 3] =
    [("hard", Order::Hard), ("query-first", Order::QueryFirst), ("streaming", Order::Streaming)];

const LISTINGS: [(&str, EntryOrder); 2] = [("w-major", EntryOrder::WMajor), ("i-major", EntryOrder::IMajor)];

const NAMES: [(&str, IdScope); 2] = [("shared", IdScope::Shared), ("levels", IdScope::Levels)];

impl FuncComp {
    pub(in crate::task) fn read(options: &mut Options) -> Result<Self, TaskError> {
        let order = options.word("order", &ORDERS)?;
        let listing = options.word("listing", &LISTINGS)?;
        let names = options.word("names", &NAMES)?;
        Ok(Self::read_sizes(options, order)?.with_listing(listing).with_names(names))
    }

    /// Everything but the order, which is `hard`.
    pub(in crate::task) fn read_walk(options: &mut Options) -> Result<Self, TaskError> {
        Self::read_sizes(options, Order::Hard)
    }

    fn read_sizes(options: &mut Options, order: Order) -> Result<Self, TaskError> {
        let hops = options.take("hops");
        let m = options.small("m", 4, 1..=MAX_TOKENS as u32)?;
        let branches = options.take("n");
        let queries = options.number("queries", 1, 1..=MAX_TOKENS)?;
        let mixed = options.flag("mixed")?;
        let hops = match hops {
            None => None,
            Some(SpecValue::Number(hops)) if (1..=MAX_HOPS as u64).contains(&hops) => Some(hops as usize),
            Some(other) => return Err(options.bad("hops", &other, format!("a whole number from 1 to {MAX_HOPS}"))),
        };
        let branches = match branches {
            None => vec![2; hops.unwrap_or(2) - 1],
            Some(SpecValue::List(list))
                if list.iter().all(|n| (1..=MAX_TOKENS).contains(n))
                    && hops.map_or(list.len() < MAX_HOPS, |hops| list.len() == hops - 1) =>
            {
                list.iter().map(|n| *n as u32).collect()
            }
            Some(other) => {
                let expected = match hops {
                    Some(1) => "the empty list, as there is one hop".to_owned(),
                    Some(hops) => format!("a list of {} numbers from 1 to {MAX_TOKENS}, as hops={hops}", hops - 1),
                    None => format!("a list of at most {} numbers from 1 to {MAX_TOKENS}", MAX_HOPS - 1),
                };
                return Err(options.bad("n", &other, expected));
            }
        };
        Self::new(m, &branches, order, queries as usize, mixed)
    }
}

impl fmt::Display for FuncComp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = ORDERS.iter().find(|(_, order)| *order == self.order).map_or("", |(word, _)| word);
        let branches = listed_numbers(&self.branches);
        let (hops, m) = (self.hops(), self.sizes[0]);
        write!(out, "{}{{hops={hops},m={m},n=[{branches}],order={order},", Self::NAME)?;
        write!(out, "queries={},mixed={}", self.queries, yes_no(self.mixed))?;
        // Runs that were stored before there was a choice keep their names.
        let listing = LISTINGS.iter().skip(1).find(|(_, listing)| *listing == self.listing);
        listing.map_or(Ok(()), |(word, _)| write!(out, ",listing={word}"))?;
        out.write_str(if self.names == IdScope::Levels { ",names=levels}" } else { "}" })
    }
}
