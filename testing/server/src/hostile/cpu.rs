//! CPU cost of hostile receivers for the server, and for a healthy site beside them.
//!
//! The CPU time of one case cannot be isolated among many, so groups of cases have their own server: the group's total,
//! less that of an idle server, bounds each of its cases. A group over the limit is halved and run again, down to
//! single cases.

use std::time::{Duration, Instant};

use stentor_harness::{Server, dot_stuff, message};

use super::run::{SENDER, World};
use super::{Case, Options};

/// For one message at one host.
pub const CPU_MS_MAX: f64 = 50.0;
/// Cases that share a server at first.
const GROUP: usize = 16;
/// Of `/proc/PID/stat`.
const TICK_MS: f64 = 10.0;

/// The bound of a case.
#[derive(Debug, Clone)]
pub struct Cpu {
    pub case: String,
    /// The case costs at most this: it is what its group did.
    pub ms_max: f64,
    /// Cases in that group.
    pub group: usize,
}

/// For each case, one after the other in groups. The cases have one message each.
pub fn cpu_of_each(cases: &[Case], options: Options) -> Vec<Cpu> {
    let idle_ms = group_ms(&[], options);
    let mut found = Vec::new();
    let mut groups: Vec<&[Case]> = cases.chunks(GROUP).collect();
    while let Some(group) = groups.pop() {
        let ms = (group_ms(group, options) - idle_ms).max(0.0);
        if ms > CPU_MS_MAX && group.len() > 1 {
            let (one, other) = group.split_at(group.len() / 2);
            groups.extend([one, other]);
            continue;
        }
        found.extend(group.iter().map(|case| Cpu { case: case.name(), ms_max: ms, group: group.len() }));
    }
    found
}

fn group_ms(cases: &[Case], options: Options) -> f64 {
    let world = World::start(cases, "", options);
    let begun = cpu_ms(&world.server);
    world.post_all(cases);
    std::thread::sleep(options.watched);
    cpu_ms(&world.server) - begun
}

/// User and system time of the server so far.
fn cpu_ms(server: &Server) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("the server runs");
    // `pid (name) state ...`: utime and stime are the 14th and 15th fields of all.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * TICK_MS
}

/// Milliseconds from the end of data to the copy at a healthy site: the median, without hostile receivers and beside
/// them.
#[derive(Debug, Clone, Copy)]
pub struct Paired {
    pub without_ms: f64,
    pub beside_ms: f64,
}

const HEALTHY: &str = "[[site]]\nname = 'healthy.example'\n";
const PACE: Duration = Duration::from_millis(20);

/// One round: `messages` to a healthy site, one every 20 ms, before mail to hostile receivers is handed in and right
/// after.
pub fn paired(cases: &[Case], options: Options, messages: usize) -> Paired {
    let world = World::start(cases, HEALTHY, options);
    let without_ms = healthy_ms(&world, "without", messages);
    world.post_all(cases);
    let beside_ms = healthy_ms(&world, "beside", messages);
    Paired { without_ms, beside_ms }
}

fn healthy_ms(world: &World, name: &str, messages: usize) -> f64 {
    let mut client = world.server.smtp();
    let recorder = world.lab.recorder();
    let ids: Vec<String> = (0..messages).map(|n| format!("{n}.{name}@test")).collect();
    let mut sent_us = Vec::new();
    for id in &ids {
        let due = Instant::now() + PACE;
        client.begin(SENDER, &["ann@healthy.example"]);
        sent_us.push(recorder.now_us());
        client.raw(&dot_stuff(&message(id, "x")));
        client.reply().expect(250);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    world.lab.wait("copies at the healthy site", |recorder| ids.iter().all(|id| recorder.copies_of(id) > 0));
    let copies = recorder.copies_to("ann@healthy.example");
    let came = |id: &String| copies.iter().find(|copy| *copy.message_id == **id).map_or(u64::MAX, |copy| copy.at_us);
    let mut took: Vec<u64> = ids.iter().zip(&sent_us).map(|(id, sent)| came(id).saturating_sub(*sent)).collect();
    took.sort_unstable();
    took[took.len() / 2] as f64 / 1000.0
}
