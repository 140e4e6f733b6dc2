//! Tables: the same cells as text, CSV and JSON.

use serde_json::{Map, Value, json};
use std::borrow::Cow;

use crate::runs::Spread;

/// Head of a column. `name` is lower case and unique in its table; it is the JSON key and the CSV head, with the unit
/// at its end (`sync_p99_us`). `title` stands above the column in text.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    pub name: Cow<'static, str>,
    pub title: String,
    /// In text it stands above the table if it is the same in all rows, and nowhere if it is empty in all.
    pub folds: bool,
}

impl Column {
    pub fn new(name: impl Into<Cow<'static, str>>, title: impl Into<String>) -> Column {
        Column { name: name.into(), title: title.into(), folds: false }
    }

    /// One that says what was measured, often the same in all rows.
    pub fn folding(name: impl Into<Cow<'static, str>>, title: impl Into<String>) -> Column {
        Column { folds: true, ..Column::new(name, title) }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Text(String),
    Count(u64),
    /// Shown with so many decimals; JSON and CSV have all of it.
    Number(f64, u8),
    /// Shown as `median (min-max)`, with so many decimals, and once where all runs agree in these; CSV has the median,
    /// and min and max in columns of their own.
    Spread(Spread, u8),
    /// Not measured, or not to be had here.
    Missing,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A spread, or nothing where there was no run.
    pub fn spread(values: impl IntoIterator<Item = f64>, decimals: u8) -> Cell {
        Spread::of(values).map_or(Cell::Missing, |spread| Cell::Spread(spread, decimals))
    }

    fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => thousands(&count.to_string()),
            Cell::Number(value, decimals) => number(*value, *decimals),
            Cell::Spread(spread, decimals) if spread.runs < 2 => number(spread.median, *decimals),
            Cell::Spread(spread, decimals) => {
                let [median, min, max] = [spread.median, spread.min, spread.max].map(|value| number(value, *decimals));
                // In all runs the same, as far as it is shown.
                if min == max { median } else { format!("{median} ({min}-{max})") }
            }
            Cell::Missing => "-".to_owned(),
        }
    }

    /// Without signs for the eye.
    fn plain(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Number(value, _) => value.to_string(),
            Cell::Spread(spread, _) => spread.median.to_string(),
            Cell::Missing => String::new(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Count(count) => json!(count),
            Cell::Number(value, _) => json!(value),
            Cell::Spread(spread, _) => json!(spread),
            Cell::Missing => Value::Null,
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Cell::Text(_))
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Lower case with hyphens: the name of its CSV file, and its key in JSON.
    pub name: String,
    /// Said above it.
    pub title: String,
    pub columns: Vec<Column>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(name: impl Into<String>, title: impl Into<String>, columns: Vec<Column>) -> Table {
        Table { name: name.into(), title: title.into(), columns, rows: Vec::new() }
    }

    /// A row of another length is a mistake in the program.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a row of table {}", self.name);
        self.rows.push(row);
    }

    /// A figure by the row's keys, as they are shown, and the name of its column; none if there is no such row or no
    /// figure in it.
    pub fn figure(&self, keys: &[(&str, &str)], column: &str) -> Option<Spread> {
        let at = |name: &str| self.columns.iter().position(|column| column.name == name);
        let keys: Vec<(usize, &str)> =
            keys.iter().map(|(name, text)| Some((at(name)?, *text))).collect::<Option<_>>()?;
        let row = self.rows.iter().find(|row| keys.iter().all(|(at, text)| row[*at].plain() == *text))?;
        match &row[at(column)?] {
            Cell::Spread(spread, _) => Some(*spread),
            Cell::Number(value, _) => Some(Spread::once(*value)),
            Cell::Count(count) => Some(Spread::once(*count as f64)),
            Cell::Text(_) | Cell::Missing => None,
        }
    }

    /// All cells as they are shown in text, the titles first.
    pub fn shown(&self) -> (Vec<&str>, Vec<Vec<String>>) {
        let titles = self.columns.iter().map(|column| column.title.as_str()).collect();
        (titles, self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect())
    }

    /// Whether a column, by its place, has text.
    pub fn is_text(&self, at: usize) -> bool {
        self.rows.iter().any(|row| row.get(at).is_some_and(Cell::is_text))
    }

    /// RFC 4180, with `\n`. A column with spreads gets two more, `NAME_min` and `NAME_max`.
    pub fn to_csv(&self) -> String {
        let spreads: Vec<bool> =
            (0..self.columns.len()).map(|at| self.rows.iter().any(|row| matches!(row[at], Cell::Spread(..)))).collect();
        let mut head = Vec::new();
        for (column, is_spread) in self.columns.iter().zip(&spreads) {
            head.push(column.name.to_string());
            if *is_spread {
                head.extend([format!("{}_min", column.name), format!("{}_max", column.name)]);
            }
        }
        let mut out = head.join(",") + "\n";
        for row in &self.rows {
            let mut cells = Vec::new();
            for (cell, is_spread) in row.iter().zip(&spreads) {
                let (value, min, max) = match cell {
                    Cell::Text(text) => (quoted(text), String::new(), String::new()),
                    Cell::Count(count) => (count.to_string(), String::new(), String::new()),
                    Cell::Number(value, _) => (value.to_string(), String::new(), String::new()),
                    Cell::Spread(s, _) => (s.median.to_string(), s.min.to_string(), s.max.to_string()),
                    Cell::Missing => Default::default(),
                };
                cells.push(value);
                if *is_spread {
                    cells.extend([min, max]);
                }
            }
            out += &(cells.join(",") + "\n");
        }
        out
    }

    /// An array of objects by column name.
    pub fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let cells = self.columns.iter().zip(row).map(|(column, cell)| (column.name.to_string(), cell.json()));
            Value::Object(cells.collect::<Map<_, _>>())
        });
        Value::Array(rows.collect())
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

fn number(value: f64, decimals: u8) -> String {
    let text = format!("{value:.0$}", usize::from(decimals));
    match text.split_once('.') {
        Some((whole, rest)) => format!("{}.{rest}", thousands(whole)),
        None => thousands(&text),
    }
}

/// `1234567` as `1,234,567`.
fn thousands(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut out = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;

    fn table() -> Table {
        let columns = vec![Column::new("file_system", "file system"), Column::new("rate_per_s", "per s")];
        let mut table = Table::new("rates", "Rates", columns);
        table.push(vec![Cell::text("ext4, \"rw\""), Cell::spread([1234.5, 1200.0, 1300.0], 1)]);
        table.push(vec![Cell::text("xfs"), Cell::Missing]);
        table
    }

    #[test]
    fn text_is_aligned_and_csv_is_quoted_and_json_has_all_digits() {
        let text = layout::table(&table(), None);
        let row = |left: &str, right: &str| format!("  {left:<11}  {right:>25}\n");
        let expected = [
            "Rates\n".to_owned(),
            row("file system", "per s"),
            row("ext4, \"rw\"", "1,234.5 (1,200.0-1,300.0)"),
            row("xfs", "-"),
        ];
        assert_eq!(text, expected.concat());
        assert_eq!(
            table().to_csv(),
            "file_system,rate_per_s,rate_per_s_min,rate_per_s_max\n\"ext4, \"\"rw\"\"\",1234.5,1200,1300\nxfs,,,\n"
        );
        let json = table().to_json();
        assert_eq!(json[0]["rate_per_s"]["median"], 1234.5);
        assert_eq!(json[1]["rate_per_s"], Value::Null);
        assert_eq!(Cell::spread([3.0, 3.04], 1).shown(), "3.0", "what all runs agree in is said once");
    }

    #[test]
    fn columns_that_are_the_same_everywhere_stand_above() {
        let columns = vec![Column::folding("way", "way"), Column::new("n", "n"), Column::folding("remark", "")];
        let mut table = Table::new("t", "Title", columns);
        let row = |way: &str, remark: &str| vec![Cell::text(way), Cell::Count(7), Cell::text(remark)];
        table.push(row("direct", ""));
        assert_eq!(layout::table(&table, None), "Title\n  way     n\n  direct  7\n");
        table.push(row("direct", ""));
        assert_eq!(layout::table(&table, None), "Title, way direct\n  n\n  7\n  7\n");
        assert_eq!(table.to_csv(), "way,n,remark\ndirect,7,\ndirect,7,\n");
        table.push(row("buffered", "why"));
        assert_eq!(layout::table(&table, None).lines().count(), 5);
    }

    #[test]
    fn figures_are_found_by_the_keys_of_their_row() {
        let table = table();
        let keys = [("file_system", "ext4, \"rw\"")];
        assert_eq!(table.figure(&keys, "rate_per_s").map(|spread| spread.median), Some(1234.5));
        assert_eq!(table.figure(&[("file_system", "xfs")], "rate_per_s"), None);
        assert_eq!(table.figure(&[("file_system", "zfs")], "rate_per_s"), None);
        assert_eq!(table.figure(&keys, "nothing"), None);
        assert_eq!(table.shown().1[1], ["xfs", "-"]);
    }

    #[test]
    fn thousands_are_parted() {
        let texts = ["0", "999", "1000", "-1234567", "nan"].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "-1,234,567", "nan"]);
    }
}
