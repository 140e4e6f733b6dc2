//! Figures and lists as words.

/// `12,345` or `3.2`.
pub fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub fn times(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0} times") } else { format!("{ratio:.1} times") }
}

/// `a`, `a or b`, `a, b or c`.
pub fn listed(mut names: Vec<String>, and: &str) -> String {
    let Some(last) = names.pop() else { return String::new() };
    if names.is_empty() { last } else { format!("{} {and} {last}", names.join(", ")) }
}

/// With a capital letter.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
