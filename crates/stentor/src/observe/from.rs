//! `--from` in `realstat`, `latedudes` and `trace`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::ExitCode;

use stentor_logfiles::{From, ReadSummary, TailEvent, feed, follow, now};
use stentor_records::civil::{Civil, Zone};
use stentor_records::escape;
use stentor_records::late::{Row, Waiting, action};
use stentor_records::mailstat::duration;
use stentor_records::rates::{Fold, Interval, Scale, row};
use stentor_records::record::Ms;

use crate::asking::fail;
use crate::output::{print, unless_closed};

/// `stentor realstat --from`: prints a row for each interval of the log; with `--follow`, of the clock.
pub fn realstat(from: &From, interval_ms: u64, rows_max: Option<u64>, json: bool) -> ExitCode {
    let zone = match from.zone() {
        Ok(zone) => zone,
        Err(why) => return fail(&why),
    };
    let mut rows = Rows { zone, scale: Scale::default(), json, left: rows_max.unwrap_or(u64::MAX) };
    let mut fold = Fold::new(interval_ms);
    let read = follow(from, &mut |fed| {
        let mut over = false;
        {
            let mut closed = |interval: Interval| over |= rows.print(&interval).is_break();
            match fed {
                TailEvent::Record(record) => fold.add(record, &mut closed),
                TailEvent::Idle => fold.until(now(), &mut closed),
            }
        }
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(last) = fold.finish() {
        let _ = rows.print(&last);
    }
    ended(read)
}

struct Rows {
    zone: Zone,
    scale: Scale,
    json: bool,
    left: u64,
}

impl Rows {
    fn print(&mut self, interval: &Interval) -> ControlFlow<()> {
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        self.left -= 1;
        let mut output = std::io::stdout().lock();
        let printed = if self.json {
            let value = serde_json::json!({
                "at": interval.at, "interval_ms": interval.interval_ms, "per_hour": interval.per_hour(),
                "delivered": interval.delivered, "failed": interval.failed,
            });
            writeln!(output, "{value}")
        } else {
            let is_new = self.scale.fit(interval);
            let legend = || self.scale.legend(&self.zone.label(interval.at));
            let told = if is_new { writeln!(output, "{}", legend()) } else { Ok(()) };
            let offset_s = i64::from(self.zone.offset_s((interval.at / 1000).cast_signed()));
            told.and_then(|()| writeln!(output, "{}", row(interval, &self.scale, offset_s)))
        };
        // The reader closed the pipe: `| head`.
        if printed.is_err() || self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn ended(read: Result<ReadSummary, String>) -> ExitCode {
    match read {
        Ok(summary) => {
            summary.print();
            if summary.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(why) => fail(&why),
    }
}

/// `stentor latedudes --from`: recipients waiting at the log's end.
pub fn latedudes(from: &From, rows: usize, json: bool) -> ExitCode {
    let zone = match from.zone() {
        Ok(zone) => zone,
        Err(why) => return fail(&why),
    };
    let mut waiting = Waiting::default();
    let read = match feed(&From { follow: false, ..from.clone() }, &mut |record| waiting.add(record)) {
        Ok(read) => read,
        Err(why) => return fail(&why),
    };
    let text = if json { late_json(&waiting, rows) } else { late_text(&waiting, rows, &zone) };
    if let Err(error) = unless_closed(print(&text)) {
        return fail(&error.to_string());
    }
    if waiting.left_out() > 0 {
        eprintln!("stentor: too many waiting recipients: {} attempts ignored", waiting.left_out());
    }
    ended(Ok(read))
}

fn late_json(waiting: &Waiting, rows: usize) -> String {
    let with_action = |rows: Vec<Row>| -> Vec<serde_json::Value> {
        rows.iter()
            .map(|row| {
                let mut value = serde_json::json!(row);
                value["action"] = action(row, waiting.last()).into();
                value
            })
            .collect()
    };
    let value = serde_json::json!({
        "at": waiting.last(),
        "pending": waiting.pending(),
        "recipients": with_action(waiting.recipients(rows)),
        "sites": with_action(waiting.domains(rows)),
    });
    format!("{value:#}\n")
}

fn late_text(waiting: &Waiting, rows: usize, zone: &Zone) -> String {
    let mut text = String::new();
    for (title, rows) in [("domain", waiting.domains(rows)), ("recipient", waiting.recipients(rows))] {
        let _ = writeln!(text, "messages  oldest  last try      {title}");
        for row in rows {
            text.push_str(&late_line(&row, waiting.last(), zone));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{} deliveries waiting", waiting.pending());
    text
}

fn late_line(row: &Row, now: Ms, zone: &Zone) -> String {
    let tried = Civil::of(row.last_try, zone);
    let age = duration(now.saturating_sub(row.oldest));
    let time = format!("{} {:02}:{:02}", tried.month_day(), tried.hour, tried.minute);
    let mut line = format!("{:>8}  {age:>6}  {time}  ", row.messages).into_bytes();
    escape::push(&mut line, &row.name, escape::EscapeContext::Field, 512);
    line.extend_from_slice(b"  ");
    escape::push(&mut line, &row.reply, escape::EscapeContext::Rest, 300);
    let mut line = String::from_utf8_lossy(&line).into_owned();
    let _ = writeln!(line, "; {}", action(row, now));
    line
}
