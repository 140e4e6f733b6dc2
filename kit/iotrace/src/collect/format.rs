//! Layouts of events as tracefs describes them (`events/SYSTEM/NAME/format`, `events/header_page`), and values out of
//! an event's bytes.
//!
//! Promise: any text and any bytes are read without a panic; a field that cannot be had is missing.

use smallvec::SmallVec;

use crate::collect::page::{Layout, number};
use crate::event::{Event, Value};

/// Texts longer than this are cut: names of functions and files, not contents.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Number,
    /// `char name[16]`: text up to the first NUL.
    Text,
    /// `unsigned long args[6]`: element `n` is the field `argsN`.
    Elements(usize),
    /// `__data_loc char[] name`: a word whose low half is the text's place in the event, the high half its length.
    DataLoc,
    /// `__rel_loc`: the same, counted from behind the word.
    RelLoc,
}

/// One field of an event, as its format says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    pub name: String,
    offset: usize,
    size: usize,
    is_signed: bool,
    shape: Shape,
}

/// One event's layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    pub name: String,
    pub id: u16,
    pub fields: Vec<Field>,
}

/// `key:value` pairs of a line `\tfield:TYPE NAME;\toffset:N;\tsize:N;\tsigned:N;`.
fn field_line(line: &str) -> Option<(&str, usize, usize, bool)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    let (mut offset, mut size, mut is_signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            Some(("signed", value)) => is_signed = value == "1",
            _ => {}
        }
    }
    Some((declared, offset?, size?, is_signed))
}

impl Field {
    fn parse(line: &str) -> Option<Field> {
        let (declared, offset, size, is_signed) = field_line(line)?;
        // `char[] cmd` behind __data_loc, `char comm[16]`, `const char * buf`, `u64 start`.
        let last = declared.rsplit([' ', '\t']).next()?;
        let (name, elements) = match last.split_once('[') {
            Some((name, count)) => (name, count.trim_end_matches(']').parse::<usize>().ok()),
            None => (last, None),
        };
        let is_text = declared.contains("char") && !declared.contains('*');
        let shape = if declared.starts_with("__data_loc") {
            if is_text { Shape::DataLoc } else { return None }
        } else if declared.starts_with("__rel_loc") {
            if is_text { Shape::RelLoc } else { return None }
        } else if last.contains('[') {
            if is_text { Shape::Text } else { Shape::Elements(elements.filter(|count| *count > 0)?) }
        } else {
            Shape::Number
        };
        Some(Field { name: name.trim_start_matches('*').to_owned(), offset, size, is_signed, shape })
    }

    /// Its value in an event; of a field with elements that of element `element`.
    fn value(&self, bytes: &[u8], element: usize) -> Option<Value> {
        match self.shape {
            Shape::Number => self.number(bytes, self.offset, self.size),
            Shape::Elements(count) => {
                let size = self.size / count;
                self.number(bytes, self.offset.checked_add(size.checked_mul(element)?)?, size)
            }
            Shape::Text => Some(text(bytes.get(self.offset..self.offset.checked_add(self.size)?)?)),
            Shape::DataLoc | Shape::RelLoc => {
                let word = number(bytes, self.offset, 4)? as usize;
                let base = if self.shape == Shape::RelLoc { self.offset.checked_add(4)? } else { 0 };
                let start = base.checked_add(word & 0xffff)?;
                Some(text(bytes.get(start..start.checked_add(word >> 16)?)?))
            }
        }
    }

    fn number(&self, bytes: &[u8], at: usize, size: usize) -> Option<Value> {
        let raw = number(bytes, at, size)?;
        let shift = 64 - 8 * size as u32;
        // Sign-extended where it is signed; an unsigned one of 64 bits keeps its bits.
        Some(Value::Number(if self.is_signed { (raw << shift).cast_signed() >> shift } else { raw.cast_signed() }))
    }
}

fn text(bytes: &[u8]) -> Value {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()).min(TEXT_BYTES_MAX);
    Value::Text(String::from_utf8_lossy(&bytes[..end]).into())
}

impl Format {
    /// None if it is no format.
    pub fn parse(text: &str) -> Option<Format> {
        let key = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        Some(Format {
            name: key("name:")?.to_owned(),
            id: key("ID:")?.parse().ok()?,
            fields: text.lines().take_while(|line| !line.starts_with("print fmt")).filter_map(Field::parse).collect(),
        })
    }

    fn find(&self, name: &str) -> Option<(usize, usize)> {
        let exact =
            self.fields.iter().position(|field| field.name == name && !matches!(field.shape, Shape::Elements(_)));
        if let Some(at) = exact {
            return Some((at, 0));
        }
        let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let element: usize = name.get(digits..)?.parse().ok()?;
        let at = self.fields.iter().position(|field| {
            field.name == name[..digits] && matches!(field.shape, Shape::Elements(count) if element < count)
        })?;
        Some((at, element))
    }
}

/// How to read events of one kind: only the fields that are wanted.
#[derive(Clone, Debug)]
pub struct Reader {
    pub kind: u16,
    flags: Option<Field>,
    pid: Option<Field>,
    /// Number in the trace, field, element.
    kept: Vec<(u16, Field, usize)>,
}

/// Of `common_flags` (`TRACE_FLAG_*`).
const FLAG_HARD_IRQ: i64 = 0x08;
const FLAG_SOFT_IRQ: i64 = 0x10;
const FLAG_NMI: i64 = 0x40;

impl Reader {
    /// `fields`: wanted names, by their number in the trace.
    pub fn new(format: &Format, kind: u16, fields: &[String]) -> Reader {
        let one = |name: &str| format.fields.iter().find(|field| field.name == name).cloned();
        let kept = fields.iter().enumerate().filter_map(|(number, name)| {
            let (at, element) = format.find(name)?;
            Some((number as u16, format.fields[at].clone(), element))
        });
        Reader { kind, flags: one("common_flags"), pid: one("common_pid"), kept: kept.collect() }
    }

    pub fn read(&self, ns: u64, cpu: u16, bytes: &[u8]) -> Event {
        let common = |field: &Option<Field>| match field.as_ref().and_then(|field| field.value(bytes, 0)) {
            Some(Value::Number(number)) => number,
            _ => 0,
        };
        let flags = common(&self.flags);
        let mut context = 0;
        if flags & (FLAG_HARD_IRQ | FLAG_NMI) != 0 {
            context |= Event::IRQ;
        }
        if flags & FLAG_SOFT_IRQ != 0 {
            context |= Event::SOFTIRQ;
        }
        let fields: SmallVec<[(u16, Value); 4]> = self
            .kept
            .iter()
            .filter_map(|(number, field, element)| Some((*number, field.value(bytes, *element)?)))
            .collect();
        Event { ns, cpu, tid: common(&self.pid) as i32, context, kind: self.kind, fields }
    }
}

/// `events/header_page`.
pub fn page_layout(text: &str) -> Option<Layout> {
    let mut layout = Layout { commit_at: 0, commit_bytes: 0, data_at: 0, data_bytes: 0 };
    for line in text.lines() {
        let Some((declared, offset, size, _)) = field_line(line) else { continue };
        match declared.rsplit(' ').next() {
            Some("commit") => (layout.commit_at, layout.commit_bytes) = (offset, size),
            Some("data") => (layout.data_at, layout.data_bytes) = (offset, size),
            _ => {}
        }
    }
    (layout.commit_bytes > 0 && layout.data_at > 0 && layout.data_bytes > 0).then_some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From a 6.18 kernel, x86-64.
    const ISSUE: &str = "name: block_rq_issue\nID: 2104\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"%d,%d\", REC->dev, field:none;\n";
    const ENTER: &str = "name: sys_enter\nID: 443\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_event_of_every_shape() {
        let format = Format::parse(ISSUE).unwrap();
        assert_eq!((format.name.as_str(), format.id, format.fields.len()), ("block_rq_issue", 2104, 9));
        let mut bytes = vec![0_u8; 72];
        bytes[2] = 0x10;
        bytes[4..8].copy_from_slice(&77_i32.to_le_bytes());
        bytes[8..12].copy_from_slice(&0xfe0_0000_u32.to_le_bytes());
        bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[24..28].copy_from_slice(&8_u32.to_le_bytes());
        bytes[34..37].copy_from_slice(b"FWS");
        bytes[60..64].copy_from_slice(&(64 | 4_u32 << 16).to_le_bytes());
        bytes[64..68].copy_from_slice(b"abc\0");
        let wanted = names(&["dev", "rwbs", "sector", "cmd", "nothing", "nr_sector"]);
        let event = Reader::new(&format, 3, &wanted).read(5, 1, &bytes);
        assert_eq!((event.ns, event.cpu, event.tid, event.kind, event.context), (5, 1, 77, 3, Event::SOFTIRQ));
        assert_eq!((event.number(0), event.number(2), event.number(5)), (Some(254 << 20), Some(-1), Some(8)));
        assert_eq!(event.value(1), Some(&Value::Text("FWS".into())));
        assert_eq!(event.value(3), Some(&Value::Text("abc".into())));
        assert_eq!(event.value(4), None);
        // Cut short: what is there.
        let event = Reader::new(&format, 3, &wanted).read(5, 1, &bytes[..26]);
        assert_eq!((event.number(0), event.number(5), event.value(3)), (Some(254 << 20), None, None));
    }

    #[test]
    fn elements_and_signs() {
        let format = Format::parse(ENTER).unwrap();
        let mut bytes = vec![0_u8; 64];
        bytes[8..16].copy_from_slice(&(-38_i64).to_le_bytes());
        bytes[32..40].copy_from_slice(&4096_u64.to_le_bytes());
        let event = Reader::new(&format, 0, &names(&["id", "args2", "args6"])).read(0, 0, &bytes);
        assert_eq!((event.number(0), event.number(1), event.number(2)), (Some(-38), Some(4096), None));
    }

    #[test]
    fn the_page_as_the_kernel_describes_it() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(page_layout(text), Some(Layout::default()));
        assert_eq!(page_layout(text).unwrap().page_bytes(), 4096);
        assert_eq!(page_layout("nothing"), None);
    }

    proptest! {
        #[test]
        fn any_format_over_any_bytes(text in "(name: a\nID: 1\n)?(\tfield:(__data_loc )?(char|int|u64)( |\\[\\] )[a-c]{1,2}(\\[[0-9]{0,3}\\])?;\toffset:[0-9]{1,20};\tsize:[0-9]{1,3};\tsigned:[01];\n){0,6}", bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(format) = Format::parse(&text) {
                let mut wanted: Vec<String> = format.fields.iter().map(|field| field.name.clone()).collect();
                wanted.extend(format.fields.iter().map(|field| format!("{}1", field.name)));
                let event = Reader::new(&format, 0, &wanted).read(0, 0, &bytes);
                prop_assert!(event.fields.len() <= wanted.len());
            }
        }
    }
}
