//! What envoyproxy/ratelimit makes of a name before it counts under it.

/// The name without what means something else to a statistics server: `:` and `|`, and the dots of IPv4 addresses.
pub(super) fn sanitised(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let address = address_at(rest);
        let (taken, left) = rest.split_at(address.unwrap_or(letter.len_utf8()));
        for letter in taken.chars() {
            match letter {
                ':' | '|' => out.push('_'),
                '.' if address.is_some() => out.push('_'),
                other => out.push(other),
            }
        }
        rest = left;
    }
    out
}

/// How long the address is that a text begins with: four numbers of up to three digits, whatever is around them.
fn address_at(text: &str) -> Option<usize> {
    let mut rest = text.as_bytes();
    for part in 0..4 {
        if part > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        rest = &rest[digits..];
    }
    Some(text.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_there() {
        let table = [
            ("user_id.path_/login", "user_id.path_/login"),
            ("det_x:y|z", "det_x_y_z"),
            ("ip_1.2.3.4", "ip_1_2_3_4"),
            ("ip_10.0.0.0/8.next", "ip_10_0_0_0/8.next"),
            ("1234.5.6.7890", "1234_5_6_7890"),
            ("1.2.3", "1.2.3"),
            ("1.2.3.", "1.2.3."),
            ("1.2..3.4", "1.2..3.4"),
            ("1.2.3.4.5.6.7.8", "1_2_3_4.5_6_7_8"),
            ("é.ü_1", "é.ü_1"),
            ("", ""),
        ];
        for (name, shown) in table {
            assert_eq!(sanitised(name), shown, "{name}");
        }
    }
}
