//! The spec of function composition: `funccomp{hops=2,m=4,n=[2]}`.

use std::fmt;

use super::{EntryOrder, FuncComp, IdScope, MAX_HOPS, Order};
use crate::spec::SpecValue;
use crate::task::options::{Options, word_of, yes_no};
use crate::task::{MAX_TOKENS, Task as _, TaskError, join_numbers};

const ORDERS: [(&str, Order); 3] =
    [("hard", Order::LastTableFirst), ("query-first", Order::QueryFirst), ("streaming", Order::Streaming)];

const ENTRY_ORDERS: [(&str, EntryOrder); 2] = [("w-major", EntryOrder::WMajor), ("i-major", EntryOrder::IMajor)];

const ID_SCOPES: [(&str, IdScope); 2] = [("shared", IdScope::Shared), ("levels", IdScope::Levels)];

impl FuncComp {
    pub(in crate::task) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let order = options.word("order", &ORDERS)?;
        let entry_order = options.word("listing", &ENTRY_ORDERS)?;
        let id_scope = options.word("names", &ID_SCOPES)?;
        Ok(Self::parse_sizes(options, order)?.with_entry_order(entry_order).with_id_scope(id_scope))
    }

    /// Only the sizes; the order is `hard`.
    pub(in crate::task) fn parse_hard_order(options: &mut Options) -> Result<Self, TaskError> {
        Self::parse_sizes(options, Order::LastTableFirst)
    }

    fn parse_sizes(options: &mut Options, order: Order) -> Result<Self, TaskError> {
        let hops = options.take("hops");
        let m = options.number_u32("m", 4, 1..=MAX_TOKENS as u32)?;
        let row_groups_per_table = options.take("n");
        let query_count = options.number("queries", 1, 1..=MAX_TOKENS)?;
        let mixed_hops = options.flag("mixed")?;
        let hops = match hops {
            None => None,
            Some(SpecValue::Number(hops)) if (1..=MAX_HOPS as u64).contains(&hops) => Some(hops as usize),
            Some(other) => {
                return Err(options.bad_value("hops", &other, format!("a whole number from 1 to {MAX_HOPS}")));
            }
        };
        let row_groups_per_table = match row_groups_per_table {
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
                return Err(options.bad_value("n", &other, expected));
            }
        };
        Self::new(m, &row_groups_per_table, order, query_count as usize, mixed_hops)
    }
}

impl fmt::Display for FuncComp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = word_of(&ORDERS, self.order);
        let row_groups_per_table = join_numbers(&self.row_groups_per_table);
        let (hops, m) = (self.hops(), self.sizes[0]);
        write!(out, "{}{{hops={hops},m={m},n=[{row_groups_per_table}],order={order},", Self::NAME)?;
        write!(out, "queries={},mixed={}", self.query_count, yes_no(self.mixed_hops))?;
        // Defaults are not printed, so that the specs of older stored runs do not change.
        let listing = ENTRY_ORDERS.iter().skip(1).find(|(_, entry_order)| *entry_order == self.entry_order);
        listing.map_or(Ok(()), |(word, _)| write!(out, ",listing={word}"))?;
        out.write_str(if self.id_scope == IdScope::Levels { ",names=levels}" } else { "}" })
    }
}
