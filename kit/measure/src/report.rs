//! A report: the results of a measurement, to be printed, written and drawn.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use stentor_records::civil::{Civil, Zone};

use crate::chart::Chart;
use crate::layout;
use crate::machine::{Machine, Place};
use crate::table::Table;

/// Of the JSON files (docs/kit/measuring.md); raised when something in them is renamed or goes.
const FORMAT: u32 = 1;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// All that is needed to judge the numbers, and the numbers.
#[derive(Clone, Debug)]
pub struct Report {
    /// Lower case with hyphens: `probe-log`. Names the JSON file.
    pub name: String,
    pub title: String,
    /// As it was given, so that it can be given again.
    pub command: String,
    /// When it began: `2026-11-22T09:36:12Z`.
    pub began_at: String,
    pub machine: Machine,
    pub places: Vec<Place>,
    /// What was chosen, also by default: `record_bytes`, `4096`.
    pub parameters: Vec<(String, String)>,
    pub tables: Vec<Table>,
    /// Tables that are too long to print: in the files alone.
    pub details: Vec<Table>,
    pub charts: Vec<Chart>,
    /// What the numbers say, in words.
    pub notes: Vec<String>,
    /// What makes them doubtful: lost events, a busy machine, runs that were cut short.
    pub warnings: Vec<String>,
}

impl Report {
    /// Empty; the machine is read now and the command is that of this process.
    pub fn new(name: impl Into<String>, title: impl Into<String>) -> Report {
        let arguments: Vec<String> = std::env::args().collect();
        Report {
            name: name.into(),
            title: title.into(),
            command: command_line(&arguments),
            began_at: utc(SystemTime::now()),
            machine: Machine::read(),
            places: Vec::new(),
            parameters: Vec::new(),
            tables: Vec::new(),
            details: Vec::new(),
            charts: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub fn parameter(&mut self, name: &str, value: impl std::fmt::Display) {
        self.parameters.push((name.to_owned(), value.to_string()));
    }

    /// When, with which Stentor, on what.
    pub fn machine_line(&self) -> String {
        format!("{}, stentor-kit {VERSION}, {}", self.began_at, self.machine.line())
    }

    /// In lines as long as they are.
    pub fn to_text(&self) -> String {
        self.to_text_within(None)
    }

    /// For a terminal of so many columns.
    pub fn to_text_within(&self, columns: Option<usize>) -> String {
        let all: Vec<String> = self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let mut head = vec![self.title.clone(), format!("  {}", self.machine_line())];
        head.extend(self.places.iter().map(|place| format!("  {}", place.line())));
        head.extend((!all.is_empty()).then(|| format!("  {}", all.join(", "))));
        let mut out: String = head.iter().map(|line| layout::sentence(line, columns)).collect();
        for table in &self.tables {
            out.push('\n');
            out += &layout::table(table, columns);
        }
        for (head, lines) in [("", &self.notes), ("WARNING: ", &self.warnings)] {
            out += if lines.is_empty() { "" } else { "\n" };
            out.extend(lines.iter().map(|line| layout::sentence(&format!("{head}{line}"), columns)));
        }
        out
    }

    /// Printed or not.
    pub fn all_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().chain(&self.details)
    }

    pub fn to_json(&self) -> Value {
        let parameters: Map<String, Value> =
            self.parameters.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let tables: Map<String, Value> = self.all_tables().map(|table| (table.name.clone(), table.to_json())).collect();
        json!({
            "format": FORMAT, "version": VERSION, "name": self.name, "title": self.title, "command": self.command,
            "began_at": self.began_at, "machine": self.machine, "places": self.places, "parameters": parameters, "tables": tables, "notes": self.notes,
            "warnings": self.warnings,
        })
    }
}

/// `2026-11-22T09:36:12Z`.
fn utc(at: SystemTime) -> String {
    let ms = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let at = Civil::of(ms, &Zone::utc());
    format!("{}T{:02}:{:02}:{:02}Z", at.date_text(), at.hour, at.minute, at.second)
}

/// With quotes where a shell needs them; the program's name without its folder.
fn command_line(arguments: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    let word = |(at, text): (usize, &String)| {
        let text = if at == 0 { text.rsplit('/').next().unwrap_or(text) } else { text };
        if !text.is_empty() && text.chars().all(plain) {
            text.to_owned()
        } else {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
    };
    arguments.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Cell, Column};

    #[test]
    fn a_report_says_where_and_how_it_was_measured() {
        let mut report = Report::new("probe-raw", "Raw throughput");
        report.parameter("size_mib", 64);
        report.warnings.push("the machine was busy".to_owned());
        let mut table =
            Table::new("raw", "Throughput", vec![Column::new("way", "way"), Column::new("mib_per_s", "MiB/s")]);
        table.push(vec![Cell::text("buffered"), Cell::Number(1000.25, 1)]);
        report.tables.push(table);
        let text = report.to_text();
        assert!(
            text.contains("size_mib 64") && text.contains("1,000.2") && text.contains("WARNING: the machine"),
            "{text}"
        );
        let json = report.to_json();
        assert_eq!(json["tables"]["raw"][0]["mib_per_s"], 1000.25);
        assert_eq!(json["parameters"]["size_mib"], "64");
        assert!(text.contains(&report.began_at) && json["began_at"] == report.began_at, "{text}");
        assert!(report.to_text_within(Some(30)).lines().all(|line| line.chars().count() <= 30), "words are short");
    }

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(utc(UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(utc(UNIX_EPOCH + std::time::Duration::from_secs(1_795_340_172)), "2026-11-22T09:36:12Z");
    }

    #[test]
    fn commands_can_be_given_again() {
        let words = ["/usr/bin/stentor-kit", "probe", "a b", "it's", ""].map(str::to_owned);
        assert_eq!(command_line(&words), r"stentor-kit probe 'a b' 'it'\''s' ''");
    }
}
