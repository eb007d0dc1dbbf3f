use super::*;

fn read(text: &str) -> TrafficConfig {
    traffic("x", text).unwrap_or_else(|problems| panic!("{text}: {problems}"))
}

fn refused(text: &str) -> Vec<String> {
    let problems = traffic("x", text).expect_err(text);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn every_pattern_has_defaults_for_all_its_fields() {
    for form in &FORMS {
        let plain = read(form.name);
        assert_eq!(plain, read(&format!("{}: {{}}", form.name)));
        // Each field that the form lists is read, and changes the traffic.
        for field in form.fields {
            let value = match *field {
                "clients" | "burst" => "7",
                "rate" | "abuse" => "7/s",
                "swing" => "7%",
                "factor" => "7x",
                "exponent" => "0.7",
                "retries" => "2",
                "spread" => "70ms",
                "every" => "7m",
                _ => "700ms",
            };
            let changed = read(&format!("{}: {{ {field}: {value} }}", form.name));
            assert_ne!(plain, changed, "{}: {field}", form.name);
        }
    }
}

#[test]
fn numbers_are_read_in_their_units() {
    let sale = read(
        "flash_sale: { clients: 2M, rate: 3k/m, factor: 2.5x, begin: 0s, fade: 90s, length: 1h }",
    );
    let pattern = TrafficPattern::FlashSale {
        rate: 50.0,
        factor: 2.5,
        begin: Span::ZERO,
        fade: Span::from_secs(90),
    };
    let length = Span::from_secs(3_600);
    assert_eq!(sale, TrafficConfig { pattern, clients: 2_000_000, length });
    assert_eq!(
        read("steady: { rate: 1/10m }").pattern,
        TrafficPattern::Steady { rate: 1.0 / 600.0 }
    );
}

#[test]
fn every_mistake_has_its_place_and_a_remedy() {
    let all = "`steady`, `poisson`, `diurnal`, `edge_bursts`, `flash_sale`, `abuser`, `herd`, \
               `zipf` or `tenants`";
    let table = [
        (
            "flashsale",
            format!(
                "x:1:1: unknown traffic, got `flashsale`; did you mean `flash_sale`? write {all}, \
                 or one with numbers like `{EXAMPLE}`"
            ),
        ),
        (
            "{ zipf: {}, steady: {} }",
            format!(
                "x:1:1: unknown traffic, got a mapping; write {all}, or one with numbers like \
                 `{EXAMPLE}`"
            ),
        ),
        (
            "zipf: 5",
            "x:1:7: zipf: traffic must be a mapping, got `5`; write it like `zipf: { clients: \
             10k }`"
                .to_owned(),
        ),
        (
            "zipf: { client: 5 }",
            "x:1:9: zipf.client: unknown field, got `client`; did you mean `clients`? the fields \
             here are `clients`, `rate`, `exponent` and `length`"
                .to_owned(),
        ),
        (
            "zipf: { clients: 0 }",
            "x:1:18: zipf.clients: must be from `1` to `100000000`, got `0`; write one in between"
                .to_owned(),
        ),
        (
            "poisson: { rate: 0/s }",
            "x:1:18: poisson.rate: must be from `1/1_000_000s` to `10M/s`, got `0/s`; write one \
             in between"
                .to_owned(),
        ),
        (
            "edge_bursts: { spread: 31s }",
            "x:1:24: edge_bursts.spread: must be at most half of `window`, got `31s`; write a \
             shorter time"
                .to_owned(),
        ),
        (
            "herd: { every: 1m }",
            "x:1:16: herd.every: must be at least `63100ms`, which all repetitions take, got `1m`; \
             raise it, or lower `retries` or `backoff`"
                .to_owned(),
        ),
    ];
    for (text, expected) in table {
        assert_eq!(refused(text), [expected], "{text}");
    }
    assert_eq!(refused("zipf: { clients: many, rate: 5, exponent: 11 }").len(), 3);
}

#[test]
fn nothing_panics_on_odd_numbers() {
    for number in ["k", "M", "-1", "1e9", "99999999999999999999k", "µ", "", "1k/", "/s", "kM/s"] {
        for field in ["clients", "rate", "retries", "backoff", "spread", "every", "length"] {
            let _ = traffic("x", &format!("herd: {{ {field}: '{number}' }}"));
        }
    }
}
