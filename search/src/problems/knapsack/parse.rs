//! Reads the usual format: number of items and capacity, then profit and weight of each item, then
//! possibly an optimal solution, one 0 or 1 for each item, which is not used.

use crate::problems::knapsack::{Instance, Item};
use crate::problems::text::{InputError, Words, short};

/// The most items.
pub const ITEMS_MAX: usize = 100_000;
/// The greatest capacity, profit or weight. The sum of all profits fits a signed number.
pub const AMOUNT_MAX: i64 = 1_000_000_000_000;

/// Reads an instance.
///
/// # Errors
/// If the text is broken: the line and the reason.
pub fn parse(text: &str) -> Result<Instance, InputError> {
    let mut words = Words::new(text);
    let count = words.count("the number of items", 1, ITEMS_MAX)?;
    let capacity = words.number("the capacity", 0, AMOUNT_MAX)?;
    let mut items = Vec::with_capacity(count);
    for item in 1..=count {
        let profit = words.number(&format!("the profit of item {item}"), 0, AMOUNT_MAX)?;
        let weight = words.number(&format!("the weight of item {item}"), 0, AMOUNT_MAX)?;
        items.push(Item { profit, weight });
    }
    let mut marks = 0;
    while let Some(word) = words.next() {
        marks += 1;
        if marks > count || !matches!(word, "0" | "1") {
            let reason = format!("`{}` follows the last of {count} items", short(word));
            return Err(words.error(reason));
        }
    }
    if marks != 0 && marks != count {
        return Err(words.error(format!("the solution has {marks} marks for {count} items")));
    }
    Ok(Instance { items, capacity })
}
