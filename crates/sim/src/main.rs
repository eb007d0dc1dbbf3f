//! x
fn main() -> anyhow::Result<()> {
    let from: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1);
    let to: u64 = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(from);
    for seed in from..=to {
        let s = sluicegate_sim::Scenario::new(seed);
        let h = sluicegate_sim::world::run(&s, from == to)?;
        let ok = h.hits.iter().filter(|h| h.allowed).count();
        println!(
            "{seed} {:x} hits {} ok {ok} calls {} lines {} errors {:?} dis {}",
            h.hash,
            h.hits.len(),
            h.calls,
            h.lines,
            h.errors,
            h.disagreements
        );
    }
    Ok(())
}
