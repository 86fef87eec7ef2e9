//! Enumerates all instances and all tokens of function composition.

use super::{FIRST_ROW_GROUP, FuncComp, FuncCompInstance, INNER, IdScope, KIND, OUTER, Order, Query, VALUE};

impl FuncComp {
    /// The number of instances; none if it does not fit.
    pub fn instance_count(&self) -> Option<u128> {
        self.radices().try_fold(1_u128, |product, radix| product.checked_mul(u128::from(radix)))
    }

    /// The instance of this number, from 0; none beyond the last. Every instance has exactly one number.
    pub fn nth_instance(&self, index: u128) -> Option<FuncCompInstance> {
        if self.instance_count().is_some_and(|count| index >= count) {
            return None;
        }
        let mut quotient = index;
        let mut digits = self.radices().map(|radix| {
            let digit = quotient % u128::from(radix);
            quotient /= u128::from(radix);
            digit as u32
        });
        let mut next = || digits.next().unwrap_or_default();
        let tables = self.sizes.iter().map(|size| (0..*size).map(|_| next()).collect()).collect();
        let query = |next: &mut dyn FnMut() -> u32| {
            let (start, row_groups) = (next(), self.row_groups_per_table.iter().map(|_| next()).collect());
            Query { start, row_groups, hops: if self.mixed_hops { next() as usize + 1 } else { self.hops() } }
        };
        let queries = (0..self.query_count).map(|_| query(&mut next)).collect();
        Some(FuncCompInstance { tables, queries })
    }

    /// Every instance, in order of number; for small tasks only.
    pub fn all_instances(&self) -> impl Iterator<Item = FuncCompInstance> + '_ {
        (0..self.instance_count().unwrap_or(u128::MAX)).map_while(|index| self.nth_instance(index))
    }

    /// The number of different tokens that can occur in prompts.
    pub fn token_count(&self) -> u128 {
        let entry_tokens: u128 = self.sizes.iter().map(|size| u128::from(*size) * u128::from(*size)).sum();
        let row_group_choices =
            self.row_groups_per_table.iter().fold(1_u128, |product, n| product.saturating_mul(u128::from(*n)));
        let kinds = if self.mixed_hops { self.hops() as u128 } else { 1 };
        entry_tokens
            + u128::from(self.sizes[0])
            + row_group_choices.saturating_mul(kinds)
            + u128::from(self.order != Order::LastTableFirst)
    }

    /// Every token that can occur in prompts, once: entries table by table, starts, queries, the slot. Check
    /// [`token_count`](Self::token_count) first.
    pub fn tokens(&self) -> Vec<Vec<u32>> {
        let blanks = self.blanks();
        let token_of_kind = |kind: u32| {
            let mut row = blanks.clone();
            row[KIND] = kind;
            row
        };
        let mut tokens = Vec::new();
        for level in 0..self.hops() {
            let inner_size = self.sizes[level.saturating_sub(1)];
            for argument in 0..self.sizes[level] {
                let mut row = token_of_kind(level as u32);
                row[INNER] = self.first_value_id(level) + argument % inner_size;
                if level > 0 || self.id_scope == IdScope::Levels {
                    row[OUTER] = self.first_row_group_id(level) + argument / inner_size;
                }
                for value in 0..self.sizes[level] {
                    row[VALUE] = self.first_value_id(level + 1) + value;
                    tokens.push(row.clone());
                }
            }
        }
        for start in 0..self.sizes[0] {
            let mut row = token_of_kind(self.hops() as u32);
            row[VALUE] = start;
            tokens.push(row);
        }
        for hops in if self.mixed_hops { 1..=self.hops() } else { self.hops()..=self.hops() } {
            let mut row = token_of_kind(self.query_kind(hops));
            let first_row_group = self.ids_per_token() - self.row_groups_per_table.len();
            row[FIRST_ROW_GROUP..first_row_group].fill(0);
            let mut queries = vec![row];
            for (e, n) in self.row_groups_per_table.iter().enumerate() {
                let extended = queries.iter().flat_map(|row| {
                    (0..*n).map(move |row_group| {
                        let mut row = row.clone();
                        row[first_row_group + e] = self.first_row_group_id(e + 1) + row_group;
                        row
                    })
                });
                queries = extended.collect();
            }
            tokens.append(&mut queries);
        }
        if self.order != Order::LastTableFirst {
            tokens.push(token_of_kind(self.slot_kind()));
        }
        tokens
    }

    /// The number of choices of each independent component of an instance: the radices of its number.
    fn radices(&self) -> impl Iterator<Item = u32> + '_ {
        let tables = self.sizes.iter().flat_map(|size| std::iter::repeat_n(*size, *size as usize));
        let query = std::iter::once(self.sizes[0]).chain(self.row_groups_per_table.iter().copied());
        let query = query.chain(self.mixed_hops.then_some(self.hops() as u32));
        tables.chain((0..self.query_count).flat_map(move |_| query.clone()))
    }
}
