//! Spans on a common time axis, one row each: from system call to device and back.

use stentor_plot::axis::{Range, short};
use stentor_plot::canvas::{self, Align, Area, Canvas, pixels};
use stentor_plot::{Colour, Theme};

use super::frame::{self, Head, MARGIN, TEXT, TEXT_ROW, room};
use super::{ROWS_MAX, Sketch, Span};

const ROW: i32 = 20;
const INDENT: i32 = 12;
const INDENT_MAX: u32 = 8;

pub fn sketch<'c>(title: &str, unit: &'c str, groups: &'c [String], spans: &'c [Span], width: i32) -> Sketch<'c> {
    let sound: Vec<&Span> = spans.iter().filter(|span| span.start.is_finite() && span.end.is_finite()).collect();
    let ends = sound.iter().flat_map(|span| [span.start, span.end.max(span.start)]);
    let (first, last) = ends.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
    if sound.is_empty() {
        return frame::empty(title, width);
    }
    let range = Range::from_zero(last - first, 6);
    let more = sound.len().saturating_sub(ROWS_MAX);
    // Those that nobody named come after the others.
    let mut names: Vec<&str> = groups.iter().map(String::as_str).collect();
    for span in &sound {
        if !names.contains(&span.group.as_str()) {
            names.push(&span.group);
        }
    }
    let colour_of = |group: &str| Theme::LIGHT.series_colour(names.iter().position(|name| *name == group).unwrap_or(0));
    let is_drawn = |group: &&str| sound.iter().any(|span| span.group == **group);
    let head = Head::new(
        title,
        "",
        names.iter().copied().filter(is_drawn).map(|group| (group, colour_of(group))).collect(),
        width,
    );
    let rows: Vec<(&Span, Colour)> = sound.iter().take(ROWS_MAX).map(|span| (*span, colour_of(&span.group))).collect();
    let indent = |span: &Span| INDENT * span.depth.min(INDENT_MAX).cast_signed();
    let labels = rows.iter().map(|(span, _)| room(&span.label, TEXT) + indent(span)).max().unwrap_or(0);
    let left = MARGIN + labels.min(width * 2 / 5) + 8;
    let area =
        Area { x: left, y: head.bottom, width: (width - left - MARGIN).max(40), height: ROW * pixels(rows.len()) + 4 };
    let height = area.bottom() + 42 + if more > 0 { TEXT_ROW } else { 0 };
    let paint = move |canvas: &mut Canvas<'_>| {
        head.paint(canvas);
        let wanted = (area.width / 90).clamp(2, 8).cast_unsigned();
        frame::bottom_axis(canvas, &area, &range, wanted, unit);
        let theme = canvas.theme;
        for (at, (span, colour)) in rows.iter().enumerate() {
            let y = area.y + 2 + ROW * pixels(at);
            let label = canvas::shortened(&span.label, TEXT, left - MARGIN - 8 - indent(span));
            canvas.text(&label, (MARGIN + indent(span), y + ROW / 2), TEXT, Align::Left, theme.text);
            let length = (span.end - span.start).max(0.0);
            bar(canvas, &area, &range, span.start - first, length, y, *colour);
        }
        if more > 0 {
            let text = format!("and {more} more spans");
            canvas.text(&text, (area.x, height - TEXT), TEXT, Align::Left, theme.muted);
        }
    };
    Sketch { height, paint: Box::new(paint) }
}

/// A span with its length beside it: at its right, where there is room, else at its left, else in it.
fn bar(canvas: &mut Canvas<'_>, area: &Area, range: &Range, start: f64, length: f64, y: i32, colour: Colour) {
    let place = |value: f64| area.x + (range.share(value).unwrap_or(1.0) * f64::from(area.width)).round() as i32;
    let (x, right) = (place(start), place(start + length).max(place(start) + 1));
    let field = Area { x, y: y + 3, width: right - x, height: ROW - 6 };
    canvas.fill(field, colour);
    let text = short(length);
    let needed = room(&text, TEXT - 1) + 6;
    let theme = canvas.theme;
    let middle = y + ROW / 2;
    if right + needed <= area.right() {
        canvas.text(&text, (right + 4, middle), TEXT - 1, Align::Left, theme.text);
    } else if x - needed >= area.x {
        canvas.text(&text, (x - 4, middle), TEXT - 1, Align::Right, theme.text);
    } else {
        let ink = frame::ink(colour, theme);
        canvas.text(&text, (i32::midpoint(x, right), middle), TEXT - 1, Align::Centre, ink);
    }
}
