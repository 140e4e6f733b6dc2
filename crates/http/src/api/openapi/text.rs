//! JSON with an object or array in one line where that is short.

use serde_json::Value;

const LINE_MAX: usize = 150;

pub(super) fn written(value: &Value) -> String {
    format!("{}\n", part(value, 0))
}

fn part(value: &Value, depth: usize) -> String {
    let flat = flat(value);
    if depth + flat.chars().count() <= LINE_MAX {
        return flat;
    }
    let (open, items, close) = match value {
        Value::Object(fields) => {
            let pair = |(name, value)| format!("{}: {}", Value::from(name), part(value, depth + 1));
            let pairs = fields.iter().map(|(name, value)| (name.as_str(), value)).map(pair);
            ('{', pairs.collect::<Vec<_>>(), '}')
        }
        Value::Array(values) => ('[', values.iter().map(|value| part(value, depth + 1)).collect(), ']'),
        _ => return flat,
    };
    let (inside, indent) = (format!("\n{}", " ".repeat(depth + 1)), " ".repeat(depth));
    format!("{open}{inside}{}\n{indent}{close}", items.join(&format!(",{inside}")))
}

/// In one line.
fn flat(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), flat(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(flat).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
