//! Merges the CPUs' pages into one trace in order of time. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::collect::format::{Format, Reader};
use crate::collect::page::{Layout, Page, number};
use crate::event::{Trace, Value};

/// All that is needed to read an instance's pages.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    pub layout: Layout,
    /// By the number in front of each event.
    readers: BTreeMap<u16, Reader>,
    kinds: Vec<String>,
    fields: Vec<String>,
}

/// Pages of one CPU, one behind the other, as they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    pub cpu: u16,
    pub bytes: Vec<u8>,
    /// Where each page ends in `bytes`: only what means something is kept.
    pub ends: Vec<usize>,
    /// As the kernel counted.
    pub lost: u64,
}

impl Stream {
    pub fn push(&mut self, page: &[u8]) {
        self.bytes.extend_from_slice(page);
        self.ends.push(self.bytes.len());
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn pages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| self.bytes.get(start..*end))
    }
}

impl Decoder {
    pub fn new(layout: Layout, fields: &[&str]) -> Decoder {
        let fields = fields.iter().map(|name| (*name).to_owned()).collect();
        Decoder { layout, readers: BTreeMap::new(), kinds: Vec::new(), fields }
    }

    /// `name`: `system/name`. The same event twice is one.
    pub fn add(&mut self, name: &str, format: &Format) {
        let kind = self.kinds.iter().position(|known| known == name).unwrap_or_else(|| {
            self.kinds.push(name.to_owned());
            self.kinds.len() - 1
        });
        self.readers.insert(format.id, Reader::new(format, kind as u16, &self.fields));
    }

    /// Events that are not known (an id of another instance's event) are passed over.
    pub fn decode(&self, streams: &[Stream]) -> Trace {
        let cpus = streams.iter().map(|stream| usize::from(stream.cpu) + 1).max().unwrap_or(0);
        let mut trace =
            Trace { kinds: self.kinds.clone(), fields: self.fields.clone(), lost: vec![0; cpus], ..Trace::default() };
        for stream in streams {
            let mut missed = 0_u64;
            for bytes in stream.pages() {
                let Some(page) = Page::new(bytes, &self.layout) else { continue };
                missed = missed.saturating_add(page.missed);
                trace.events.extend(page.filter_map(|(ns, payload)| {
                    let id = number(payload, 0, 2)? as u16;
                    Some(self.readers.get(&id)?.read(ns, stream.cpu, payload))
                }));
            }
            // The pages' marks and the kernel's count tell of the same events.
            let lost = &mut trace.lost[usize::from(stream.cpu)];
            *lost = lost.saturating_add(stream.lost.max(missed));
        }
        // Stable, and each stream is in order already.
        trace.events.sort_by_key(|event| event.ns);
        names(&mut trace);
        trace
    }
}

/// Names of threads, as the scheduler's events tell them; the last one holds.
fn names(trace: &mut Trace) {
    const PAIRS: [(&str, &str); 4] =
        [("prev_pid", "prev_comm"), ("next_pid", "next_comm"), ("pid", "comm"), ("child_pid", "child_comm")];
    let fields: Vec<(u16, u16)> =
        PAIRS.iter().filter_map(|(pid, comm)| Some((trace.field(pid)?, trace.field(comm)?))).collect();
    let is_sched: Vec<bool> = trace.kinds.iter().map(|kind| kind.starts_with("sched/")).collect();
    for event in &trace.events {
        if !is_sched.get(usize::from(event.kind)).is_some_and(|is| *is) {
            continue;
        }
        for (pid, comm) in &fields {
            if let (Some(tid), Some(Value::Text(name))) = (event.number(*pid), event.value(*comm)) {
                match trace.threads.get_mut(&(tid as i32)) {
                    Some(known) if known.as_str() == &**name => {}
                    Some(known) => {
                        known.clear();
                        known.push_str(name);
                    }
                    None => drop(trace.threads.insert(tid as i32, name.to_string())),
                }
            }
        }
    }
}

/// The addresses of kernel functions in these fields.
pub fn addresses(trace: &Trace, fields: &[&str]) -> BTreeSet<u64> {
    let fields: Vec<u16> = fields.iter().filter_map(|name| trace.field(name)).collect();
    let numbers = trace
        .events
        .iter()
        .flat_map(|event| fields.iter().filter_map(|field| event.number(*field)).map(|number| number as u64));
    numbers.collect()
}

/// Puts the functions' names in place of their addresses, where they are known.
pub fn name_functions(trace: &mut Trace, fields: &[&str], names: &BTreeMap<u64, String>) {
    let fields: Vec<u16> = fields.iter().filter_map(|name| trace.field(name)).collect();
    for event in &mut trace.events {
        for (field, value) in &mut event.fields {
            let Value::Number(number) = value else { continue };
            if let Some(name) = names.get(&(*number as u64)).filter(|_| fields.contains(field)) {
                *value = Value::Text(name.as_str().into());
            }
        }
    }
}

/// Joins traces of several instances, which ran on the same clock.
pub fn join(traces: Vec<Trace>) -> Trace {
    let mut all = Trace::default();
    for mut trace in traces {
        let place = |names: &mut Vec<String>, of: &[String]| -> Vec<u16> {
            let number = |name: &String| {
                let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
                    names.push(name.clone());
                    names.len() - 1
                });
                at as u16
            };
            of.iter().map(number).collect()
        };
        let kinds = place(&mut all.kinds, &trace.kinds);
        let fields = place(&mut all.fields, &trace.fields);
        for event in &mut trace.events {
            event.kind = kinds[usize::from(event.kind)];
            for (field, _) in &mut event.fields {
                *field = fields[usize::from(*field)];
            }
        }
        all.events.append(&mut trace.events);
        all.threads.append(&mut trace.threads);
        all.processes.append(&mut trace.processes);
        all.lost.resize(all.lost.len().max(trace.lost.len()), 0);
        for (sum, lost) in all.lost.iter_mut().zip(&trace.lost) {
            *sum += lost;
        }
    }
    all.events.sort_by_key(|event| event.ns);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::page::used_bytes;

    const SWITCH: &str = "name: sched_switch\nID: 5\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:char prev_comm[4];\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:12;\tsize:4;\tsigned:1;\n";

    fn page(ns: u64, id: u16, pids: &[i32]) -> Vec<u8> {
        let mut data = Vec::new();
        for pid in pids {
            data.extend((4_u32 | 10 << 5).to_le_bytes());
            data.extend(id.to_le_bytes());
            data.extend([0, 0]);
            data.extend(pid.to_le_bytes());
            data.extend(if *pid < 100 { *b"one\0" } else { *b"many" });
            data.extend(pid.to_le_bytes());
        }
        let mut page = [ns.to_le_bytes(), (data.len() as u64 | u64::from(ns == 0) << 31).to_le_bytes()].concat();
        page.extend(data);
        page.resize(4096, 0);
        page
    }

    fn stream(cpu: u16, lost: u64, pages: &[Vec<u8>]) -> Stream {
        let mut stream = Stream { cpu, lost, ..Stream::default() };
        for page in pages {
            stream.push(&page[..used_bytes(page, &Layout::default())]);
        }
        stream
    }

    fn decoder(name: &str) -> Decoder {
        let mut decoder = Decoder::new(Layout::default(), &["prev_pid", "prev_comm"]);
        decoder.add(name, &Format::parse(SWITCH).unwrap());
        decoder
    }

    #[test]
    fn cpus_are_merged_in_order_of_time_and_threads_are_named() {
        let streams = [
            stream(0, 2, &[page(100, 5, &[1, 2]), page(500, 5, &[3])]),
            stream(1, 0, &[page(0, 5, &[]), page(105, 5, &[200]), page(400, 6, &[9])]),
        ];
        let trace = decoder("sched/sched_switch").decode(&streams);
        let seen: Vec<_> = trace.events.iter().map(|event| (event.ns, event.cpu, event.tid)).collect();
        assert_eq!(seen, [(110, 0, 1), (115, 1, 200), (120, 0, 2), (510, 0, 3)]);
        assert_eq!(trace.lost, [2, 1]);
        assert_eq!(trace.threads[&200], "many");
        assert_eq!(trace.threads[&2], "one");
    }

    #[test]
    fn traces_of_two_instances_become_one() {
        let one = decoder("sched/sched_switch").decode(&[stream(0, 1, &[page(100, 5, &[1])])]);
        let mut two = decoder("sched/sched_other").decode(&[stream(1, 4, &[page(50, 5, &[7])])]);
        two.fields.insert(0, "first".to_owned());
        two.events[0].fields.iter_mut().for_each(|(field, _)| *field += 1);
        let mut all = join(vec![one, two]);
        assert_eq!(all.kinds, ["sched/sched_switch", "sched/sched_other"]);
        let pid = all.field("prev_pid").unwrap();
        assert_eq!(all.events.iter().map(|event| event.number(pid)).collect::<Vec<_>>(), [Some(7), Some(1)]);
        assert_eq!(all.lost, [1, 4]);
        assert_eq!(addresses(&all, &["prev_pid"]).len(), 2);
        name_functions(&mut all, &["prev_pid"], &BTreeMap::from([(7, "wb_workfn".to_owned())]));
        assert_eq!(all.events[0].value(pid), Some(&Value::Text("wb_workfn".into())));
    }

    /// A page as a 6.18 kernel gave it: a thread that writes 100 octets, sleeps 0.3 s and writes 4097. The sleep is
    /// longer than an event's own delta can tell, so that a `TIME_EXTEND` stands between.
    #[test]
    fn a_page_of_a_real_kernel() {
        let mut decoder = Decoder::new(Layout::default(), &["fd", "count", "ret"]);
        for (name, format) in [
            ("syscalls/sys_enter_write", include_str!("fixtures/sys_enter_write.format")),
            ("syscalls/sys_exit_write", include_str!("fixtures/sys_exit_write.format")),
        ] {
            decoder.add(name, &Format::parse(format).unwrap());
        }
        let trace = decoder.decode(&[stream(0, 0, &[include_bytes!("fixtures/page.bin").to_vec()])]);
        let number = |event: &crate::Event, name| event.number(trace.field(name).unwrap());
        let seen: Vec<_> = trace
            .events
            .iter()
            .map(|event| (event.kind, number(event, "fd"), number(event, "count"), number(event, "ret")))
            .collect();
        let (enter, exit) = (0, 1);
        let expected = [
            // The end of the write that switched tracing on, and the beginning of the one that switched it off.
            (exit, None, None, Some(1)),
            (enter, Some(3), Some(100), None),
            (exit, None, None, Some(100)),
            (enter, Some(3), Some(4097), None),
            (exit, None, None, Some(4097)),
            (enter, Some(4), Some(1), None),
        ];
        assert_eq!(seen, expected);
        assert!(trace.events.iter().all(|event| (event.tid, event.context) == (5239, 0)));
        // What the thread's own clock said before the first and after the second.
        assert!(trace.events[1].ns > 37_528_472_672_182 && trace.events[4].ns < 37_528_776_082_203);
        assert!((300_000_000..303_410_021).contains(&(trace.events[3].ns - trace.events[2].ns)));
    }
}
