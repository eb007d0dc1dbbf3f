use super::*;

const GOOD: &str = "\
duration: 20s
nodes: [{}, { clock_offset: -50ms, clock_drift: 20ppm, network: { delay: 40ms } }]
store: { latency: { p50: 1ms, p99: 20ms }, timeout: 50ms }
rules:
  domain: shop
  descriptors:
    - { key: user, limits: { algorithm: fixed_window, rate: 5/s } }
traffic:
  - { request: { user: 'u{client}' }, rate: 50/s, clients: 10, from: 1s, refund: 2.5% }
events:
  - { at: 5s, for: 5s, store: down }
  - { at: 6s, clock: { node: 1, by: -3s } }
  - at: 7s
    rules:
      domain: shop
      descriptors: []
";

fn problems(text: &str) -> String {
    scenario("s.yaml", text).unwrap_err().to_string()
}

#[test]
fn scenarios_are_read() {
    let read = scenario("s.yaml", GOOD).unwrap();
    assert_eq!((read.nodes[1].clock_offset_ms, read.nodes[1].clock_drift_ppm), (-50, 20));
    assert_eq!(read.nodes[1].network.map(|network| network.delay_ms), Some(40));
    assert_eq!(read.store.latency, [(500, 1), (990, 20)]);
    let stream = &read.traffic[0];
    assert_eq!((stream.rate_milli, stream.refunds, stream.span_ms), (50_000, 25, (1_000, 20_000)));
    assert_eq!(read.events[0].action, ActionConfig::StoreDown(None));
    assert_eq!(read.events[1].action, ActionConfig::Clock(1, -3_000));
}

#[test]
fn inline_rules_have_the_lines_of_the_scenario() {
    let read = scenario("s.yaml", GOOD).unwrap();
    let RulesText::Inline(rules) = read.rules else { panic!("{:?}", read.rules) };
    let line = rules.lines().nth(6).unwrap();
    assert_eq!(line, "    - { key: user, limits: { algorithm: fixed_window, rate: 5/s } }");
    assert!(!rules.contains("traffic"), "{rules}");
    let ActionConfig::Reload(RulesText::Inline(later)) = &read.events[2].action else {
        panic!("{:?}", read.events)
    };
    assert_eq!(later.lines().nth(14), Some("      domain: shop"));
}

#[test]
fn problems_have_a_place_and_a_remedy() {
    for (change, expected) in [
        (("duration: 20s", "duraton: 20s"), "s.yaml:1:1: duraton: unknown field"),
        (("duration: 20s", "duration: 0s"), "s.yaml:1:11: duration: must be longer than nothing"),
        (("timeout: 50ms", "timeout: 1500us"), "must be whole milliseconds, got `1500us`"),
        (("rate: 50/s", "rate: 90000000/s"), "must be between"),
        (("p99: 20ms", "p99: 0s"), "must not be below the quantile before it"),
        (("for: 5s, store: down", "for: 5s"), "events[0]: has no action"),
        (("store: down", "store: down, crash: 1"), "events[0]: has two actions"),
        (("node: 1, by", "node: 7, by"), "there is no node `7`"),
        (("refund: 2.5%", "refund: 2.55%"), "at most one decimal, got `2.55%`"),
        (("rate: 50/s", "rate: 5000000/s"), "must be at most 5000000 requests, got `95000000`"),
    ] {
        let text = GOOD.replace(change.0, change.1);
        assert_ne!(text, GOOD, "{change:?}");
        let found = problems(&text);
        assert!(found.contains(expected), "{change:?}: {found}");
    }
}
