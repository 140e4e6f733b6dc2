//! What a measurement says: one report, printed, written and drawn.

use serde_json::{Map, Value, json};
use std::fmt::Write as _;

use crate::chart::Chart;
use crate::machine::{Machine, Place};
use crate::table::Table;

/// All that is needed to judge the numbers, and the numbers.
#[derive(Clone, Debug)]
pub struct Report {
    /// Lower case with hyphens: `probe-log`. Names the JSON file.
    pub name: String,
    pub title: String,
    /// As it was given, so that it can be given again.
    pub command: String,
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

    pub fn to_text(&self) -> String {
        let mut out = format!("{}\n  {}\n", self.title, self.machine.line());
        // Writing to a String cannot fail.
        for place in &self.places {
            let _ = writeln!(out, "  {}", place.line());
        }
        if !self.parameters.is_empty() {
            let all: Vec<String> = self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let _ = writeln!(out, "  {}", all.join(", "));
        }
        for table in &self.tables {
            let _ = write!(out, "\n{}", table.to_text());
        }
        for (head, lines) in [("", &self.notes), ("WARNING: ", &self.warnings)] {
            for (at, line) in lines.iter().enumerate() {
                let _ = writeln!(out, "{}{head}{line}", if at == 0 { "\n" } else { "" });
            }
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
            "name": self.name, "title": self.title, "command": self.command, "machine": self.machine,
            "places": self.places, "parameters": parameters, "tables": tables, "notes": self.notes,
            "warnings": self.warnings,
        })
    }
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
    }

    #[test]
    fn commands_can_be_given_again() {
        let words = ["/usr/bin/stentor", "probe", "a b", "it's", ""].map(str::to_owned);
        assert_eq!(command_line(&words), r"stentor probe 'a b' 'it'\''s' ''");
    }
}
