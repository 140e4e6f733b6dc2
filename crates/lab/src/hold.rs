//! `stentor lab hold`: opens very many connections and keeps them, sends mail over some of them at a time, and says what
//! that cost both sides: for finding out what bounds a server or a source address.
//!
//! Promise: a connection counts as held once its greeting 220 was read, and as lost if the server ends it before we do. Each
//! message goes over a connection of its own, in turn, so that held ones prove to be alive. One thread, one epoll set.
//!
//! States of a connection: connecting → greeting → idle → (EHLO once) → envelope → data → idle; or gone, with the reason
//! counted. The command opens all, then (if asked) sends, waits, resets.

use crate::address::{Sources, Targets};
use crate::error::LabError;
use crate::procfs::{Kernel, Used};
use clap::Args;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use stentor_measure::{Cell, Column, Histogram, OutputArgs, Progress, Report, Stop, Table};

const EVENTS: usize = 512;
/// Waits for events are not longer, so that Ctrl-C is seen.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A phase ends if nothing at all happens for so long.
const PATIENCE: Duration = Duration::from_secs(30);
const BODY_LINE: &[u8] = b"0123456789012345678901234567890123456789012345678901234567890123456789\r\n";
/// Of what is no connection.
const DESCRIPTORS_SPARE: u64 = 32;
/// Where in the body the message's number is.
const ID_DIGITS: std::ops::Range<usize> = 13..23;
const DEFAULT_PORTS: (u16, u16) = (32768, 60999);

/// Options of `stentor lab hold`.
#[derive(Args, Debug, Clone)]
pub struct HoldArgs {
    /// Servers, used in turn: address:port, or a range such as 127.0.0.1-127.0.0.8:2525.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Targets>,
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    connections: u32,
    /// Source addresses, used in turn: 127.0.1.1 or 127.0.1.1-127.0.1.4. Without: the kernel's choice.
    #[arg(long, value_name = "ADDRESS")]
    from: Vec<Sources>,
    /// So many are being opened at a time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    opening: u32,
    /// Messages to send over the held connections, in turn.
    #[arg(long, default_value_t = 0)]
    messages: u64,
    /// So many of them at a time.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    active: u32,
    #[arg(long, default_value_t = 4096)]
    size_bytes: usize,
    /// Keep them for so long.
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
    /// The server's process: its memory is in the report.
    #[arg(long)]
    pid: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Greeting,
    Idle,
    Ehlo,
    /// MAIL, RCPT and DATA are sent; so many replies are still to come.
    Envelope(u8),
    Body,
}

struct Held {
    socket: OwnedFd,
    state: State,
    extended: bool,
    /// An incomplete reply line: its length, and what it began with.
    line_len: usize,
    line: [u8; 4],
    begun: Instant,
}

/// What happens to a phase by one event.
enum Step {
    Nothing,
    Greeted,
    Sent,
}

struct Client {
    epoll: OwnedFd,
    held: Vec<Option<Held>>,
    errors: BTreeMap<String, u64>,
    body: Vec<u8>,
    times_us: Histogram,
}

/// Source and port of each connection: one (source, target) pair after the other, each with all ports of the range.
struct Ways {
    sources: Vec<Option<IpAddr>>,
    targets: Vec<SocketAddr>,
    ports: (u16, u16),
    next: u64,
}

impl Ways {
    /// The range that the kernel would choose from.
    fn ports() -> (u16, u16) {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
        numbers.next().zip(numbers.next()).unwrap_or(DEFAULT_PORTS)
    }

    fn pairs(&self) -> u64 {
        (self.sources.len() * self.targets.len()) as u64
    }

    /// The next one; none when all ports of all pairs were used. Without sources of our own the kernel chooses.
    fn next(&mut self) -> Option<(Option<SocketAddr>, SocketAddr)> {
        let (pair, round) = (self.next % self.pairs(), self.next / self.pairs());
        self.next += 1;
        let target = self.targets[pair as usize % self.targets.len()];
        let source = self.sources[pair as usize / self.targets.len()];
        let Some(source) = source else { return Some((None, target)) };
        let port = u64::from(self.ports.0) + round;
        (port <= u64::from(self.ports.1)).then(|| (Some(SocketAddr::new(source, port as u16)), target))
    }
}

impl Client {
    fn new(size_bytes: usize) -> io::Result<Client> {
        let mut body = b"Message-ID: <0000000000.hold@source.lab>\r\nSubject: held\r\n\r\n".to_vec();
        while body.len() < size_bytes {
            body.extend_from_slice(BODY_LINE);
        }
        body.extend_from_slice(b".\r\n");
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Client { epoll, held: Vec::new(), errors: BTreeMap::new(), body, times_us: Histogram::default() })
    }

    fn connect(&mut self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if let Some(from) = from {
            // The same port may be used towards another target.
            socket.set_reuse_address(true)?;
            socket.bind(&from.into())?;
        }
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let socket = OwnedFd::from(socket);
        let number = self.held.len() as u64;
        // Edge-triggered writing tells that it is connected, and nothing more as long as the server reads.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, EventData::new_u64(number), flags)?;
        let begun = Instant::now();
        let held = Held { socket, state: State::Connecting, extended: false, line_len: 0, line: [0; 4], begun };
        self.held.push(Some(held));
        Ok(())
    }

    fn fail(&mut self, why: String) {
        *self.errors.entry(why).or_default() += 1;
    }

    fn lose(&mut self, number: usize, why: &str) {
        if let Some(held) = self.held[number].take() {
            let when = match held.state {
                State::Connecting => "connecting",
                State::Greeting => "before the greeting",
                State::Idle => "while idle",
                State::Ehlo | State::Envelope(_) | State::Body => "while sending",
            };
            self.fail(format!("{why}, {when}"));
        }
    }

    fn say(&mut self, number: usize, bytes: &[u8]) {
        let Some(held) = &self.held[number] else { return };
        match send(&held.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) if count == bytes.len() => {}
            // Some kilobytes into an empty buffer: a server that does not read is what this does not measure.
            Ok(_) => self.lose(number, "the server does not read"),
            Err(error) => self.lose(number, &io::Error::from(error).kind().to_string()),
        }
    }

    /// Begins a message over an idle connection; false if it is not idle.
    fn begin(&mut self, number: usize) -> bool {
        let Some(held) = self.held[number].as_mut().filter(|held| held.state == State::Idle) else { return false };
        held.begun = Instant::now();
        if held.extended {
            self.envelope(number);
        } else {
            held.state = State::Ehlo;
            self.say(number, b"EHLO source.lab\r\n");
        }
        true
    }

    fn envelope(&mut self, number: usize) {
        if let Some(held) = &mut self.held[number] {
            held.state = State::Envelope(3);
            self.say(number, b"MAIL FROM:<hold@source.lab>\r\nRCPT TO:<sink@sink.lab>\r\nDATA\r\n");
        }
    }

    /// Takes what there is; at most one [`Step`] comes of it, as nothing is pipelined beyond a reply that is waited for.
    fn serve(&mut self, number: usize, flags: EventFlags, buffer: &mut [u8]) -> Step {
        let Some(held) = &mut self.held[number] else { return Step::Nothing };
        if held.state == State::Connecting {
            if let Err(error) = rustix::net::sockopt::socket_error(&held.socket).unwrap_or_else(Err) {
                self.lose(number, &io::Error::from(error).kind().to_string());
                return Step::Nothing;
            }
            if !flags.contains(EventFlags::OUT) {
                return Step::Nothing;
            }
            held.state = State::Greeting;
        }
        let mut step = Step::Nothing;
        loop {
            let Some(held) = &self.held[number] else { return step };
            match recv(&held.socket, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::AGAIN) => return step,
                Err(Errno::INTR) => {}
                Err(error) => self.lose(number, &io::Error::from(error).kind().to_string()),
                Ok((_, 0)) => self.lose(number, "closed by the server"),
                Ok((_, count)) => {
                    for &octet in &buffer[..count] {
                        match self.octet(number, octet) {
                            Step::Nothing => {}
                            some => step = some,
                        }
                    }
                }
            }
        }
    }

    /// One octet of the replies.
    fn octet(&mut self, number: usize, octet: u8) -> Step {
        let Some(held) = &mut self.held[number] else { return Step::Nothing };
        if octet != b'\n' {
            if let Some(place) = held.line.get_mut(held.line_len) {
                *place = octet;
            }
            held.line_len += 1;
            return Step::Nothing;
        }
        held.line_len = 0;
        if held.line[3] == b'-' {
            return Step::Nothing;
        }
        let code = held.line.first_chunk::<3>().copied().unwrap_or_default();
        self.reply(number, code)
    }

    fn reply(&mut self, number: usize, code: [u8; 3]) -> Step {
        let Some(held) = &mut self.held[number] else { return Step::Nothing };
        match (held.state, &code) {
            (State::Greeting, b"220") => {
                held.state = State::Idle;
                return Step::Greeted;
            }
            (State::Ehlo, b"250") => {
                held.extended = true;
                self.envelope(number);
            }
            (State::Envelope(left @ 2..), b"250") => held.state = State::Envelope(left - 1),
            (State::Envelope(1), b"354") => {
                held.state = State::Body;
                self.number_body();
                let body = std::mem::take(&mut self.body);
                self.say(number, &body);
                self.body = body;
            }
            (State::Body, b"250") => {
                held.state = State::Idle;
                self.times_us.add(held.begun.elapsed().as_micros() as u64);
                return Step::Sent;
            }
            _ => self.lose(number, &format!("answered {}", String::from_utf8_lossy(&code).escape_debug())),
        }
        Step::Nothing
    }

    /// Each message has a Message-ID of its own: the number in the body is counted up.
    fn number_body(&mut self) {
        for digit in self.body[ID_DIGITS].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }

    /// With RST: an orderly end would leave each connection's port in `TIME_WAIT` for a minute, and the next run without.
    fn close_all(&mut self) {
        for held in self.held.drain(..).flatten() {
            // Failing that, it is closed all the same.
            let _ = socket2::SockRef::from(&held.socket).set_linger(Some(Duration::ZERO));
        }
    }

    fn open_now(&self) -> u64 {
        self.held.iter().flatten().filter(|held| !matches!(held.state, State::Connecting | State::Greeting)).count()
            as u64
    }
}

/// What both sides use at one point.
#[derive(Clone, Copy, Default)]
struct Point {
    server: Option<Used>,
    client: Used,
    kernel: Kernel,
}

impl Point {
    fn now(pid: Option<u32>) -> Point {
        Point {
            server: pid.and_then(Used::of),
            client: Used::of(std::process::id()).unwrap_or_default(),
            kernel: Kernel::read(),
        }
    }
}

struct Outcome {
    opened: u64,
    open_s: f64,
    sent: u64,
    send_s: f64,
    alive: u64,
    before: Point,
    held: Point,
    ran_out: bool,
}

/// Opens, sends, keeps and reports.
pub fn run_hold(args: &HoldArgs) -> Result<(), LabError> {
    let stop = Stop::on_signals()?;
    if let Some(pid) = args.pid.filter(|pid| Used::of(*pid).is_none()) {
        return Err(LabError::Measure(format!("there is no process {pid}")));
    }
    let descriptors = crate::descriptors::raise();
    if descriptors <= u64::from(args.connections) + DESCRIPTORS_SPARE {
        return Err(LabError::Measure(format!(
            "{} connections need as many descriptors; this process has {descriptors} and may not raise that (it lacks \
             CAP_SYS_RESOURCE): raise the hard limit (ulimit -Hn), or start several, each with a part of them",
            args.connections
        )));
    }
    let mut client = Client::new(args.size_bytes)?;
    let mut sources: Vec<Option<IpAddr>> = args.from.iter().flat_map(|from| from.0.iter().copied().map(Some)).collect();
    if sources.is_empty() {
        sources.push(None);
    }
    let targets = args.targets.iter().flat_map(|targets| targets.0.iter().copied()).collect();
    let mut ways = Ways { sources, targets, ports: Ways::ports(), next: 0 };
    let outcome = carry_out(args, &mut client, &mut ways, &stop)?;
    let report = report(args, &client, &ways, &outcome);
    args.output.finish(&report)?;
    Ok(())
}

fn carry_out(args: &HoldArgs, client: &mut Client, ways: &mut Ways, stop: &Stop) -> Result<Outcome, LabError> {
    let mut progress = args.output.progress();
    let before = Point::now(args.pid);
    let begun = Instant::now();
    let ran_out = open_all(args, client, ways, stop, &mut progress)?;
    let open_s = begun.elapsed().as_secs_f64();
    let (opened, held) = (client.open_now(), Point::now(args.pid));
    let begun = Instant::now();
    let sent = send_all(args, client, stop, &mut progress)?;
    let send_s = begun.elapsed().as_secs_f64();
    let end = Instant::now() + Duration::try_from_secs_f64(args.seconds).unwrap_or_default();
    let mut buffer = vec![0; 4096];
    while !stop.is_set() && Instant::now() < end {
        progress.step(|| format!("{} held", client.open_now()));
        // Whoever is closed by the server is counted.
        turn(client, LOOK_EVERY.min(end.saturating_duration_since(Instant::now())), &mut buffer, |_| {})?;
    }
    progress.clear();
    let alive = client.open_now();
    client.close_all();
    Ok(Outcome { opened, open_s, sent, send_s, alive, before, held, ran_out })
}

/// Waits once and deals with what came.
fn turn(client: &mut Client, most: Duration, buffer: &mut [u8], mut stepped: impl FnMut(Step)) -> io::Result<usize> {
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
    let most = Timespec::try_from(most).ok();
    let count = match epoll::wait(&client.epoll, &mut events[..], most.as_ref()) {
        Ok(count) => count,
        Err(Errno::INTR) => 0,
        Err(error) => return Err(error.into()),
    };
    for event in &events[..count] {
        let (flags, data) = (event.flags, event.data.u64());
        stepped(client.serve(data as usize, flags, buffer));
    }
    Ok(count)
}

/// True if there was no port left before all were open.
fn open_all(
    args: &HoldArgs,
    client: &mut Client,
    ways: &mut Ways,
    stop: &Stop,
    progress: &mut Progress,
) -> io::Result<bool> {
    let (mut begun, mut greeted, mut ran_out) = (0, 0_u64, false);
    let mut lost = 0;
    let mut buffer = vec![0; 4096];
    let mut last = Instant::now();
    while !stop.is_set() {
        let wanted = u64::from(args.connections);
        while begun < wanted && !ran_out && begun - greeted - lost < u64::from(args.opening) {
            let Some((from, to)) = ways.next() else {
                ran_out = true;
                break;
            };
            match client.connect(from, to) {
                Ok(()) => begun += 1,
                // Another program's port: the next one will do.
                Err(error) if from.is_some() && error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    client.fail(format!("{error}, connecting"));
                    ran_out = error.kind() == io::ErrorKind::AddrNotAvailable;
                    if !ran_out {
                        begun += 1;
                        lost += 1;
                    }
                }
            }
        }
        if greeted + lost >= begun && (begun >= wanted || ran_out) {
            break;
        }
        let before: u64 = client.errors.values().sum();
        let seen = turn(client, LOOK_EVERY, &mut buffer, |step| greeted += u64::from(matches!(step, Step::Greeted)))?;
        lost += client.errors.values().sum::<u64>() - before;
        if seen > 0 {
            last = Instant::now();
        } else if last.elapsed() > PATIENCE {
            client.fail(format!("no answer for {} s: not waited for any longer", PATIENCE.as_secs()));
            break;
        }
        progress.step(|| format!("{greeted} of {wanted} connections open"));
    }
    Ok(ran_out)
}

fn send_all(args: &HoldArgs, client: &mut Client, stop: &Stop, progress: &mut Progress) -> io::Result<u64> {
    let (mut sent, mut begun, mut at) = (0_u64, 0_u64, 0);
    let mut buffer = vec![0; 4096];
    let mut last = Instant::now();
    let failed = |client: &Client| client.errors.values().sum::<u64>();
    let failed_before = failed(client);
    while !stop.is_set() && sent + failed(client) - failed_before < args.messages {
        let mut skipped = 0;
        while begun < args.messages
            && begun - sent - (failed(client) - failed_before).min(begun - sent) < u64::from(args.active)
            && skipped < client.held.len()
        {
            let is_idle = client.begin(at);
            at = (at + 1) % client.held.len();
            begun += u64::from(is_idle);
            skipped += usize::from(!is_idle);
        }
        let seen = turn(client, LOOK_EVERY, &mut buffer, |step| sent += u64::from(matches!(step, Step::Sent)))?;
        if seen > 0 {
            last = Instant::now();
        } else if last.elapsed() > PATIENCE || client.held.iter().all(Option::is_none) {
            client.fail("no answer any more".to_owned());
            break;
        }
        progress.step(|| format!("{sent} of {} messages sent", args.messages));
    }
    Ok(sent)
}

fn report(args: &HoldArgs, client: &Client, ways: &Ways, outcome: &Outcome) -> Report {
    let mut report = Report::new("lab-hold", "Connections held");
    report.parameter("targets", ways.targets.len());
    report.parameter(
        "sources",
        if args.from.is_empty() { "the kernel's choice".to_owned() } else { ways.sources.len().to_string() },
    );
    report.parameter("ports", format!("{}-{}", ways.ports.0, ways.ports.1));
    report.parameter("opening", args.opening);
    report.tables.push(held_table(args, client, outcome));
    report.tables.push(memory_table(outcome));
    if !client.errors.is_empty() {
        let columns = vec![Column::new("error", "error"), Column::new("connections", "connections")];
        let mut table = Table::new("errors", "What went wrong", columns);
        for (error, count) in &client.errors {
            table.push(vec![Cell::text(error.clone()), Cell::Count(*count)]);
        }
        report.tables.push(table);
    }
    if outcome.ran_out {
        let each = u64::from(ways.ports.1 - ways.ports.0) + 1;
        report.notes.push(format!(
            "No port was left: {} pairs of source and target have {each} each. More source addresses (--from) or more \
             targets give more.",
            ways.pairs()
        ));
    }
    if outcome.alive < outcome.opened {
        report.warnings.push(format!("{} connections did not last", outcome.opened - outcome.alive));
    }
    report
}

fn held_table(args: &HoldArgs, client: &Client, outcome: &Outcome) -> Table {
    let columns = vec![
        Column::new("wanted", "wanted"),
        Column::new("opened", "opened"),
        Column::new("open_s", "in s"),
        Column::new("opened_per_s", "per s"),
        Column::new("messages", "messages"),
        Column::new("messages_per_s", "per s"),
        Column::new("p50_us", "p50 us"),
        Column::new("p99_us", "p99 us"),
        Column::new("alive", "alive at the end"),
    ];
    let mut table = Table::new("held", "Opened, used, and still there", columns);
    let [p50, p99] = [0.5, 0.99].map(|share| match outcome.sent {
        0 => Cell::Missing,
        _ => Cell::Count(client.times_us.percentile(share)),
    });
    table.push(vec![
        Cell::Count(u64::from(args.connections)),
        Cell::Count(outcome.opened),
        Cell::Number(outcome.open_s, 2),
        Cell::Number(outcome.opened as f64 / outcome.open_s.max(1e-6), 0),
        Cell::Count(outcome.sent),
        if outcome.sent == 0 { Cell::Missing } else { Cell::Number(outcome.sent as f64 / outcome.send_s.max(1e-6), 0) },
        p50,
        p99,
        Cell::Count(outcome.alive),
    ]);
    table
}

/// Differences between before and with all open, for each connection.
fn memory_table(outcome: &Outcome) -> Table {
    let columns = vec![
        Column::new("what", "what"),
        Column::new("before_mib", "before, MiB"),
        Column::new("held_mib", "with all open"),
        Column::new("bytes_per_connection", "octets a connection"),
    ];
    let mut table =
        Table::new("memory", "Memory. The kernel's is of both ends, where both are on this machine", columns);
    let mut row = |what: &str, of: &dyn Fn(&Point) -> Option<u64>| {
        let (Some(before), Some(held)) = (of(&outcome.before), of(&outcome.held)) else { return };
        let mib = |bytes: u64| Cell::Number(bytes as f64 / 1_048_576.0, 1);
        let each = (held as f64 - before as f64) / outcome.opened.max(1) as f64;
        table.push(vec![Cell::text(what), mib(before), mib(held), Cell::Number(each, 0)]);
    };
    row("server, resident", &|point| point.server.map(|used| used.resident_bytes));
    row("server, virtual", &|point| point.server.map(|used| used.virtual_bytes));
    row("this client, resident", &|point| Some(point.client.resident_bytes));
    row("kernel: slabs", &|point| Some(point.kernel.slab_bytes));
    row("kernel: stacks of threads", &|point| Some(point.kernel.stacks_bytes));
    row("kernel: page tables", &|point| Some(point.kernel.page_tables_bytes));
    row("kernel: TCP buffers", &|point| Some(point.kernel.tcp_buffer_bytes));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_source_and_target_uses_all_ports() {
        let source = |n: u8| Some(IpAddr::from([127, 0, 1, n]));
        let targets = ["127.0.0.1-127.0.0.2:25".parse::<Targets>().expect("a range").0].concat();
        let mut ways = Ways { sources: vec![source(1), source(2)], targets, ports: (100, 102), next: 0 };
        let mut seen = std::collections::HashSet::new();
        while let Some((from, to)) = ways.next() {
            assert!(seen.insert((from.expect("bound"), to)));
        }
        assert_eq!(seen.len(), 2 * 2 * 3);
    }
}
