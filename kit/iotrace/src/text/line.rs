//! Classifies one line of a trace's text.

/// A thread as the text names it: `comm-pid`. The name may hold anything, also blanks, hyphens and brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task<'a> {
    pub name: &'a str,
    pub tid: u32,
}

impl<'a> Task<'a> {
    /// Of text that ends with `-PID`.
    fn parse(text: &'a str) -> Option<Task<'a>> {
        let (name, tid) = text.trim().rsplit_once('-')?;
        if !tid.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Task { name, tid: tid.parse().ok()? })
    }
}

/// What the function graph tracer says of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// `name() {`
    Enter(&'a str),
    /// `name();` with its duration.
    Leaf(&'a str),
    /// `}`, with the function's name if the text has it.
    Leave(Option<&'a str>),
    /// `/* name: text */`: an event, or a comment of `trace_printk`.
    Comment(&'a str),
    /// `==========>`
    IrqIn,
    /// `<==========`
    IrqOut,
}

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// Of the function graph tracer, in either layout. `indent`: columns before the name, which grow with the depth.
    Graph { task: Option<Task<'a>>, cpu: Option<u32>, duration_ns: Option<u64>, indent: usize, step: Step<'a> },
    /// A tracepoint, or another tracer's line (`function`).
    Event { task: Task<'a>, cpu: u32, name: &'a str },
    /// `CPU:3 [LOST 7 EVENTS]`, `CPU:3 [7 EVENTS DROPPED]`; the number is not always known.
    Lost { cpu: u32, events: Option<u64> },
    /// ` 0)  sh-4802  =>  bash-1` between two rules.
    Switch { cpu: u32, from: Task<'a>, to: Task<'a> },
    /// Headers, rules, comments, empty lines.
    Nothing,
    /// In no form that is known.
    Unknown,
}

/// The number at the start, and the rest.
fn digits(text: &str) -> Option<(u32, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Nanoseconds of `12.345 us`, perhaps behind a mark of overhead (`+ ! # * @ $`). Up to three decimals count.
pub fn duration_ns(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches(['+', '!', '#', '*', '@', '$']).trim_start();
    let number = text.strip_suffix("us")?.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(1000)?;
    let thousandths = part.bytes().chain(*b"000").take(3).fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    whole.checked_add(thousandths)
}

/// `123.456789`, or a counter without a point.
fn is_stamp(text: &str) -> bool {
    !text.is_empty()
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|c| c.is_ascii_digit() || c == b'.')
}

impl<'a> Line<'a> {
    pub fn parse(line: &'a str) -> Line<'a> {
        let text = line.trim();
        let is_rule = text.len() > 9 && text.bytes().all(|byte| byte == b'-');
        let heads = ["cpus=", "version", "entries", "trace.dat", "Buffer", "=> ", "<stack"];
        let is_head = !text.contains('[') && heads.iter().any(|head| text.starts_with(head));
        if text.is_empty() || text.starts_with('#') || is_rule || is_head {
            return Line::Nothing;
        }
        if let Some(rest) = text.strip_prefix("CPU:") {
            return lost(rest).unwrap_or(Line::Unknown);
        }
        report_line(line).or_else(|| latency_line(line)).or_else(|| graph_line(line)).unwrap_or(Line::Unknown)
    }
}

/// `3 [LOST 7 EVENTS]`, `3 [7 EVENTS DROPPED]`, `3 [EVENTS DROPPED]`, `3 [SUBBUFFER START]`.
fn lost(rest: &str) -> Option<Line<'_>> {
    let (cpu, rest) = digits(rest)?;
    let inner = rest.trim().strip_prefix('[')?.split_once(']')?.0;
    if inner.starts_with("SUBBUFFER") {
        return Some(Line::Nothing);
    }
    if !inner.contains("EVENT") {
        return None;
    }
    Some(Line::Lost { cpu, events: inner.split(' ').find_map(|word| word.parse().ok()) })
}

/// `comm-pid [cpu] flags time: event: text`, as trace-cmd and ftrace's default layout have it.
fn report_line(line: &str) -> Option<Line<'_>> {
    let line = without_buffer(line);
    for (at, _) in line.match_indices('[') {
        let Some((cpu, rest)) = digits(&line[at + 1..]) else { continue };
        let Some(rest) = rest.strip_prefix(']') else { continue };
        // With the option record-tgid the process stands behind the thread: `(  123)`, `(-----)`.
        let mut left = line[..at].trim_end();
        if let Some((before, tgid)) = left.strip_suffix(')').and_then(|left| left.rsplit_once('('))
            && tgid.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b' ' | b'-'))
        {
            left = before.trim_end();
        }
        let Some(task) = Task::parse(left) else { continue };
        let Some((head, rest)) = rest.split_once(':') else { continue };
        // Flags, if there are any, and the time.
        let mut words = head.split_whitespace();
        let (Some(stamp), None) = (words.next_back(), words.nth(1)) else { continue };
        if !is_stamp(stamp) {
            continue;
        }
        return event(task, cpu, rest);
    }
    None
}

/// `comm-pid  0d.h1. time: event: text`, as `trace-cmd report -l` has it: the CPU, and marks of latency behind it.
fn latency_line(line: &str) -> Option<Line<'_>> {
    for (at, _) in line.match_indices(':') {
        let Some((left, stamp)) = line[..at].trim_end().rsplit_once(' ') else { continue };
        let Some((left, marks)) = left.trim_end().rsplit_once(' ') else { continue };
        let Some((cpu, flags)) = digits(marks) else { continue };
        if is_stamp(stamp)
            && (4..=8).contains(&flags.len())
            && flags.bytes().all(|c| c == b'.' || c.is_ascii_alphanumeric())
            && let Some(task) = Task::parse(left)
        {
            return event(task, cpu, &line[at + 1..]);
        }
    }
    None
}

/// What stands behind the time: `event: text`, before it the difference to the last one with `--ts-diff` (`(+12)`,
/// blanks in the first line).
fn event<'a>(task: Task<'a>, cpu: u32, rest: &'a str) -> Option<Line<'a>> {
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("(+").and_then(|rest| Some(rest.split_once(')')?.1.trim_start())).unwrap_or(rest);
    Some(match rest.split_once(':') {
        Some(("funcgraph_entry" | "funcgraph_exit", text)) => call(task, cpu, text)?,
        Some((name, _)) if !name.contains(' ') => Line::Event { task, cpu, name },
        // ftrace's function tracer: `mutex_unlock <-rb_simple_write`.
        _ if rest.contains("<-") => Line::Event { task, cpu, name: "function" },
        _ => return None,
    })
}

/// With several buffers trace-cmd puts the buffer's name in front (`mine:      dd-12 [000] ...`); else a line begins
/// with blanks, as a thread's name is shorter than its column.
fn without_buffer(line: &str) -> &str {
    match line.split_once(": ") {
        Some((name, rest)) if !name.contains([' ', '[']) && !name.is_empty() && rest.contains(" [") => rest,
        _ => line,
    }
}

/// `+ 36.358 us |  }` behind `funcgraph_exit:`.
fn call<'a>(task: Task<'a>, cpu: u32, text: &'a str) -> Option<Line<'a>> {
    let (left, right) = text.split_once('|')?;
    let duration_ns = if left.trim().is_empty() { None } else { Some(duration_ns(left)?) };
    let step = step(right)?;
    Some(Line::Graph { task: Some(task), cpu: Some(cpu), duration_ns, indent: indent(right), step })
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// What stands behind the last rule.
fn step(text: &str) -> Option<Step<'_>> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('}') {
        let comment =
            rest.split_once("/*").and_then(|(_, inner)| inner.split_once("*/")).map(|(inner, _)| inner.trim());
        // `/* name */`, `/* name() */`, `/* name = -22 */`, `/* name [module] ret=0x0 */`
        let name = comment.map(|inner| function(inner.split([' ', '(']).next().unwrap_or(inner), inner));
        return Some(Step::Leave(name.filter(|name| !name.is_empty() && *name != "=")));
    }
    if let Some(comment) = text.strip_prefix("/*") {
        return Some(Step::Comment(comment.trim_end_matches("*/").trim()));
    }
    if text.starts_with("==========>") {
        return Some(Step::IrqIn);
    }
    if text.starts_with("<==========") {
        return Some(Step::IrqOut);
    }
    let (name, rest) = text.split_once('(')?;
    let name = name.trim();
    if name.is_empty() {
        return None;
    }
    // Arguments may stand within; what is behind the last parenthesis that closes tells.
    let rest = rest.split_once("/*").map_or(rest, |(before, _)| before).trim_end();
    // With the option fgraph:depth the depth stands behind: `name(); (3)`.
    let rest = match rest.rsplit_once(" (") {
        Some((before, depth))
            if depth.ends_with(')') && depth[..depth.len() - 1].bytes().all(|c| c.is_ascii_digit()) =>
        {
            before.trim_end()
        }
        _ => rest,
    };
    if rest.ends_with('{') {
        Some(Step::Enter(name))
    } else if rest.ends_with(';') {
        Some(Step::Leaf(name))
    } else {
        None
    }
}

/// With its module, if that stands behind it.
fn function<'a>(name: &'a str, text: &'a str) -> &'a str {
    let rest = &text[name.len()..];
    let module = rest.strip_prefix(" [").and_then(|rest| rest.find(']'));
    module.map_or(name, |end| &text[..=name.len() + 2 + end])
}

/// ftrace's own layout: `TIME |  CPU) TASK | DURATION | CALL`, each column but the last optional.
fn graph_line(line: &str) -> Option<Line<'_>> {
    let mut rest = line;
    if let Some((stamp, right)) = rest.split_once('|')
        && is_stamp(stamp.trim())
        && stamp.contains('.')
    {
        rest = right;
    }
    let mut cpu = None;
    if let Some((number, right)) = digits(rest.trim_start())
        && let Some(right) = right.strip_prefix(')')
    {
        (cpu, rest) = (Some(number), right);
    }
    if let (Some(cpu), Some((from, to))) = (cpu, rest.split_once("=>"))
        && let (Some(from), Some(to)) = (Task::parse(from), Task::parse(to))
    {
        return Some(Line::Switch { cpu, from, to });
    }
    let (mut task, mut duration) = (None, None);
    while let Some((column, right)) = rest.split_once('|') {
        let column = column.trim();
        if column.contains("==========") {
            let step = step(column)?;
            return Some(Line::Graph { task, cpu, duration_ns: None, indent: 0, step });
        }
        // A name that a column's rule does not belong to: the call itself has begun.
        if column.contains(['(', '}', '/']) {
            break;
        }
        rest = right;
        if let Some(ns) = duration_ns(column) {
            duration = Some(ns);
            break;
        }
        task = task.or_else(|| Task::parse(column));
    }
    // Without any column it may be any text.
    if cpu.is_none() && std::ptr::eq(rest, line) {
        return None;
    }
    Some(Line::Graph { task, cpu, duration_ns: duration, indent: indent(rest), step: step(rest)? })
}
