//! Tables: rows of cells under headings, which become cards on narrow screens.
//!
//! Promise: each cell carries its column's heading, which a card shows beside it. Roles are explicit, since a browser
//! may drop those of a table with another display style. A long table scrolls in its own region, reachable by keyboard,
//! with its headings visible.

use maud::{Markup, html};

/// A column; `class` describes its cells: `n` a number, `t` a time, `reply` a reply.
#[derive(Clone, Copy)]
pub struct Column {
    label: &'static str,
    class: &'static str,
    /// Whether its cells name their rows.
    is_head: bool,
}

pub const fn column(label: &'static str, class: &'static str) -> Column {
    Column { label, class, is_head: false }
}

/// The column that names the row.
pub const fn head(label: &'static str, class: &'static str) -> Column {
    Column { label, class, is_head: true }
}

/// A table. `caption` names it uniquely on its page, for screen readers. `total` is its last row, set apart.
pub fn table(caption: &str, columns: &[Column], rows: &[Vec<Markup>], total: Option<&[Markup]>) -> Markup {
    render(caption, "hidden", columns, rows, total)
}

/// As [`table`], with a visible caption.
pub fn explained_table(caption: &str, columns: &[Column], rows: &[Vec<Markup>], total: Option<&[Markup]>) -> Markup {
    render(caption, "", columns, rows, total)
}

fn render(caption: &str, class: &str, columns: &[Column], rows: &[Vec<Markup>], total: Option<&[Markup]>) -> Markup {
    html! {
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table role="table" {
                caption.(class) { (caption) }
                thead role="rowgroup" {
                    tr role="row" {
                        @for column in columns {
                            th.(column.class) scope="col" role="columnheader" { (column.label) }
                        }
                    }
                }
                tbody role="rowgroup" { @for row in rows { tr role="row" { (cells(columns, row)) } } }
                @if let Some(total) = total {
                    tfoot role="rowgroup" { tr role="row" { (cells(columns, total)) } }
                }
            }
        }
    }
}

fn cells(columns: &[Column], row: &[Markup]) -> Markup {
    html! {
        @for (column, cell) in columns.iter().zip(row) {
            @if column.is_head {
                th.(column.class) scope="row" role="rowheader" data-label=(column.label) { (cell) }
            } @else {
                td.(column.class) role="cell" data-label=(column.label) { (cell) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_know_their_columns() {
        let columns = [head("Site", "long"), column("Recipients", "n")];
        let rows = [vec![html! { "a.example" }, html! { (7) }]];
        let text = table("Sites", &columns, &rows, Some(&[html! { "Total" }, html! { (7) }])).into_string();
        for part in [
            "<th class=\"long\" scope=\"col\" role=\"columnheader\">Site</th>",
            "<th class=\"long\" scope=\"row\" role=\"rowheader\" data-label=\"Site\">a.example</th>",
            "<td class=\"n\" role=\"cell\" data-label=\"Recipients\">7</td>",
            "<tfoot role=\"rowgroup\">",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
