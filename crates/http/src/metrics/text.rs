//! Prometheus' text format 0.0.4.

use std::fmt::Write as _;

/// Samples, grouped by family.
#[derive(Default)]
pub struct Text {
    out: String,
    name: &'static str,
}

impl Text {
    /// Begins a family.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample of the family begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let name = self.name;
        self.line(name, labels, value);
    }

    pub fn counter(&mut self, name: &'static str, help: &str, value: f64) {
        self.family(name, "counter", help);
        self.sample(&[], value);
    }

    pub fn gauge(&mut self, name: &'static str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(&[], value);
    }

    /// A histogram. `buckets` are bounds with counts up to them, in units of `unit`.
    pub fn histogram(
        &mut self,
        name: &'static str,
        help: &str,
        buckets: &[(u64, u64)],
        count: u64,
        sum: u64,
        unit: f64,
    ) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in buckets {
            // Bounds are in microseconds, so six digits are exact.
            let bound = format!("{:.6}", *bound as f64 * unit);
            self.line(&bucket, &[("le", bound.trim_end_matches('0').trim_end_matches('.'))], *count as f64);
        }
        self.line(&bucket, &[("le", "+Inf")], count as f64);
        // Six digits here too.
        self.line(&format!("{name}_sum"), &[], (sum as f64 * unit * 1e6).round() / 1e6);
        self.line(&format!("{name}_count"), &[], count as f64);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.out.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.out, "{}{label}=\"{escaped}\"", if at == 0 { '{' } else { ',' });
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }

    pub fn end(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format() {
        let mut text = Text::default();
        text.counter("a_total", "Things.", 3.0);
        text.family("b", "gauge", "Others.");
        text.sample(&[("x", "q\"\\\n"), ("y", "2")], 0.5);
        text.histogram("c_seconds", "Times.", &[(100, 1), (1_000_000, 2)], 3, 2_000_100, 1e-6);
        assert_eq!(
            text.end(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total 3\n# HELP b Others.\n# TYPE b gauge\n\
             b{x=\"q\\\"\\\\\\n\",y=\"2\"} 0.5\n# HELP c_seconds Times.\n# TYPE c_seconds histogram\n\
             c_seconds_bucket{le=\"0.0001\"} 1\nc_seconds_bucket{le=\"1\"} 2\nc_seconds_bucket{le=\"+Inf\"} 3\n\
             c_seconds_sum 2.0001\nc_seconds_count 3\n"
        );
    }
}
