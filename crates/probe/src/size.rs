//! Sizes on the command line: `4096`, `4K`, `64KiB`, `1M`.

/// Octets; units are powers of 1024.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return Err(format!("{text}: a number, or one with K, M or G behind it: 4096, 64K, 1M")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text}: no number, such as 4096 or 64K"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too much"))
}

/// The shortest exact form: `4 KiB`, `700 B`.
pub fn shown(bytes: u64) -> String {
    for (factor, unit) in [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{} {unit}", bytes / factor);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(["4096", "4K", "64 KiB", "1M"].map(|text| parse(text).unwrap()), [4096, 4096, 65_536, 1_048_576]);
        for wrong in ["", "K", "4X", "-1", "99999999999999G"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!([0, 700, 4096, 1 << 20].map(shown), ["0 B", "700 B", "4 KiB", "1 MiB"]);
    }
}
