//! Tests of tables behind a daemon written in another language.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use stentor_ruletables::remote::{For, Remote, TABLE_CONNECTIONS_MAX};
use stentor_tables::SocketmapAddress;
use stentor_tables::socketmap::SocketmapReply;
use tokio::task::{JoinSet, yield_now};

/// A daemon written in another language. It answers `KEY` with `MAP/KEY`, and some keys make it misbehave.
const DAEMON: &str = r#"
import socket, socketserver, sys, time

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            digits = b""
            while not digits.endswith(b":"):
                octet = self.rfile.read(1)
                if not octet:
                    return
                digits += octet
            text = self.rfile.read(int(digits[:-1]))
            assert self.rfile.read(1) == b","
            name, key = text.split(b" ", 1)
            replies = {
                b"absent": b"NOTFOUND ", b"busy": b"TEMP try later", b"denied": b"PERM no such map", b"slow": b"TIMEOUT base",
                b"odd": b"HELLO",
            }
            if key == b"close":
                return
            if key == b"silent":
                time.sleep(3600)
            if key == b"large":
                reply = b"OK " + b"x" * 99_997
            elif key == b"huge":
                reply = b"OK " + b"x" * 99_998
            elif key == b"once":
                self.wfile.write(b"4:OK 1,")
                return
            else:
                reply = replies.get(key, b"OK " + name + b"/" + key)
            for piece in (b"%d:" % len(reply), reply[:2], reply[2:], b","):
                self.wfile.write(piece)
                self.wfile.flush()

class Inet(socketserver.ThreadingTCPServer):
    daemon_threads = True

class Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

server = Unix(sys.argv[1], Handler) if len(sys.argv) > 1 else Inet(("127.0.0.1", 0), Handler)
print(server.server_address[1] if len(sys.argv) < 2 else 0, flush=True)
server.serve_forever()
"#;

struct Daemon(Child, u16);

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        let mut python = Command::new("python3");
        let command = python.arg("-c").arg(DAEMON).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }

    fn endpoint(&self) -> SocketmapAddress {
        SocketmapAddress::Inet { host: "127.0.0.1".into(), port: self.1, name: "map".into() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const PATIENT: Duration = Duration::from_mins(1);

fn found(value: &[u8]) -> SocketmapReply {
    SocketmapReply::Found(value.to_vec())
}

fn fails(reply: SocketmapReply, why: &str) {
    match reply {
        SocketmapReply::Tempfail(text) => assert!(text.contains(why) && text.starts_with("socketmap:"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_daemon_is_asked_over_tcp() {
    let daemon = Daemon::start(&[]);
    let remote = Remote::socketmap(daemon.endpoint(), PATIENT);
    assert_eq!(remote.get(b"a b", For::Us).await, found(b"map/a b"));
    assert_eq!(remote.get(b"absent", For::Us).await, SocketmapReply::NotFound);
    for (key, why) in [(&b"busy"[..], "TEMP: try later"), (b"denied", "PERM: no such map"), (b"slow", "TIMEOUT: base")]
    {
        fails(remote.get(key, For::Us).await, why);
    }
    fails(remote.get(b"odd", For::Us).await, "does not begin with OK");
    fails(remote.get(b"huge", For::Us).await, "longer than");
    fails(remote.get(b"close", For::Us).await, "closed without a reply");
    assert_eq!(remote.get(b"large", For::Us).await, found(&b"x".repeat(99_997)));
    // The daemon closes after its reply: the next lookup needs another connection.
    assert_eq!(remote.get(b"once", For::Us).await, found(b"1"));
    assert_eq!(remote.get(b"next", For::Us).await, found(b"map/next"));
}

#[tokio::test]
async fn a_daemon_is_asked_over_a_unix_socket_by_many_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _daemon = Daemon::start(&[path.to_str().unwrap()]);
    let remote = Arc::new(Remote::socketmap(SocketmapAddress::Unix { path, name: "map".into() }, PATIENT));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..4 * TABLE_CONNECTIONS_MAX {
        let remote = remote.clone();
        tasks.spawn(async move {
            let key = format!("key {number}");
            assert_eq!(remote.get(key.as_bytes(), For::Us).await, found(format!("map/{key}").as_bytes()));
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

#[tokio::test]
async fn who_does_not_answer_is_a_temporary_failure() {
    let daemon = Daemon::start(&[]);
    let remote = Remote::socketmap(daemon.endpoint(), Duration::from_millis(200));
    fails(remote.get(b"silent", For::Us).await, "no reply within 0.2 s");
    let endpoint = daemon.endpoint();
    drop(daemon);
    fails(Remote::socketmap(endpoint, PATIENT).get(b"key", For::Us).await, "cannot connect");
    let endpoint = SocketmapAddress::Unix { path: "/does/not/exist".into(), name: "m".into() };
    fails(Remote::socketmap(endpoint, PATIENT).get(b"key", For::Us).await, "cannot connect");
}

#[tokio::test]
async fn slow_keys_of_strangers_leave_turns_to_others() {
    let daemon = Daemon::start(&[]);
    let remote = Arc::new(Remote::socketmap(daemon.endpoint(), PATIENT));
    let client = |n: u8| For::Stranger(IpAddr::from([192, 0, 2, n]));
    let mut asked = JoinSet::new();
    let mut ask = |whom| {
        for _ in 0..TABLE_CONNECTIONS_MAX {
            let remote = remote.clone();
            asked.spawn(async move { remote.get(b"silent", whom).await });
        }
    };
    ask(client(1));
    yield_now().await;
    assert_eq!(remote.get(b"a", client(2)).await, found(b"map/a"), "one client has all turns");
    for n in 2..10 {
        ask(client(n));
    }
    yield_now().await;
    assert_eq!(remote.get(b"b", For::Us).await, found(b"map/b"), "strangers have all turns");
}
