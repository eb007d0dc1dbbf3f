//! What is leased, as text: `#node:serial:amount:weight:until,…`, with the node in hexadecimal digits.

use std::fmt::Write;

use super::number;
use crate::arithmetic::EXACT_MAX;
use crate::lease::{Leases, NodeLease};
use crate::time::Timestamp;

/// Appends a word, if there is something to say.
pub(super) fn write(leases: &Leases, out: &mut String) {
    for (index, cell) in leases.nodes().iter().enumerate() {
        let NodeLease { node, serial, amount, weight, until } = cell;
        let [serial, amount, weight] = [serial, amount, weight].map(|n| *n.min(&EXACT_MAX));
        let before = if index == 0 { " #" } else { "," };
        let until = until.as_micros();
        let _ = write!(out, "{before}{node:016x}:{serial}:{amount}:{weight}:{until}");
    }
}

/// What the word behind the `#` says.
pub(super) fn read(text: &str) -> Option<Leases> {
    let cells: Option<Vec<NodeLease>> = text.split(',').map(cell).collect();
    Leases::new(cells?)
}

fn cell(text: &str) -> Option<NodeLease> {
    let (node, rest) = text.split_once(':')?;
    let is_hex = node.len() == 16 && node.bytes().all(|byte| byte.is_ascii_hexdigit());
    let node = u64::from_str_radix(node, 16).ok().filter(|_| is_hex)?;
    let mut numbers = rest.split(':').map(number);
    let (serial, amount, weight) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let until = Timestamp::from_micros(numbers.next()??);
    numbers.next().is_none().then_some(NodeLease { node, serial, amount, weight, until })
}
