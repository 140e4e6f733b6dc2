//! Prometheus' text format 0.0.4.

use std::fmt::Write as _;

use super::families::{Family, family};

/// Samples, grouped by family.
#[derive(Default)]
pub struct Text {
    out: String,
    family: Option<&'static Family>,
}

impl Text {
    /// Begins a family.
    pub fn family(&mut self, name: &str) {
        let family = family(name);
        self.family = Some(family);
        let _ = write!(self.out, "# HELP {name} {}\n# TYPE {name} {}\n", family.help, family.kind);
    }

    /// A sample of the family begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let Some(family) = self.family else { return };
        debug_assert!(labels.iter().map(|(label, _)| label).eq(family.labels), "{}: other labels", family.name);
        self.line(family.name, labels, value);
    }

    /// A counter or gauge without labels.
    pub fn value(&mut self, name: &str, value: f64) {
        self.family(name);
        self.sample(&[], value);
    }

    /// A histogram. `buckets` are bounds with counts up to them, in units of `unit`.
    pub fn histogram(&mut self, name: &str, buckets: &[(u64, u64)], count: u64, sum: u64, unit: f64) {
        self.family(name);
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
        text.value("stentor_dns_failures_total", 3.0);
        text.family("stentor_refused_total");
        text.sample(&[("code", "q\"\\\n"), ("dsn", "2")], 0.5);
        text.histogram("stentor_sync_duration_seconds", &[(100, 1), (1_000_000, 2)], 3, 2_000_100, 1e-6);
        let text = text.end();
        let mut lines = text.lines();
        let dns = ["# HELP stentor_dns_failures_total Failed lookups.", "# TYPE stentor_dns_failures_total counter"];
        assert_eq!([lines.next(), lines.next()], dns.map(Some));
        let samples: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples.join("\n").replace("stentor_sync_duration", "c"),
            "stentor_dns_failures_total 3\nstentor_refused_total{code=\"q\\\"\\\\\\n\",dsn=\"2\"} 0.5\n\
             c_seconds_bucket{le=\"0.0001\"} 1\nc_seconds_bucket{le=\"1\"} 2\nc_seconds_bucket{le=\"+Inf\"} 3\n\
             c_seconds_sum 2.0001\nc_seconds_count 3"
        );
    }
}
