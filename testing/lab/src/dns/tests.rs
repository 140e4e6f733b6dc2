use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RData};

use super::*;

struct TestServer {
    server: Arc<Server>,
}

fn server(toml: &str) -> TestServer {
    let scenario = Arc::new(Scenario::parse(toml).expect("valid"));
    TestServer { server: Arc::new(Server::new(scenario, Arc::new(Recorder::new(crate::Mode::Full)))) }
}

fn one(dns: &str) -> TestServer {
    server(&format!("[[site]]\nname = 'x.example'\nhosts = 2\ndns = '{dns}'"))
}

fn query(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = 77;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).expect("name"), kind));
    message.to_vec().expect("encodes")
}

impl TestServer {
    fn ask(&self, name: &str, kind: RecordType, tcp: bool) -> Option<Message> {
        let (reply, _) = self.server.reply(&query(name, kind), tcp)?;
        Some(Message::from_vec(&reply).expect("decodes"))
    }

    fn mx(&self, name: &str) -> Vec<String> {
        let reply = self.ask(name, RecordType::MX, true).expect("answered");
        let hosts = reply.answers.iter().filter_map(|record| match &record.data {
            RData::MX(mx) => Some(format!("{} {}", mx.preference, mx.exchange)),
            _ => None,
        });
        hosts.collect()
    }

    fn code(&self, name: &str) -> ResponseCode {
        self.ask(name, RecordType::MX, false).expect("answered").metadata.response_code
    }

    fn address(&self, name: &str) -> Option<String> {
        let reply = self.ask(name, RecordType::A, true).expect("answered");
        reply.answers.iter().find_map(|record| match &record.data {
            RData::A(a) => Some(a.0.to_string()),
            _ => None,
        })
    }
}

#[test]
fn proper_answers() {
    let dns = one("ok");
    assert_eq!(dns.mx("X.example."), ["10 mx1.x.example.", "10 mx2.x.example."]);
    assert_eq!(dns.address("mx2.x.example.").as_deref(), Some("127.16.0.2"));
    assert_eq!(dns.address("x.example."), None);
    assert_eq!(dns.code("y.example."), ResponseCode::NXDomain);
    let empty = dns.ask("x.example.", RecordType::AAAA, false).expect("answered");
    assert_eq!((empty.answers.len(), empty.authorities.len()), (0, 1), "NODATA has its SOA");
    assert_eq!(dns.server.queries("x.example", RecordType::MX), 1);
    assert_eq!(dns.server.stats().address, 3);
}

#[test]
fn refusals_and_silence() {
    for (kind, code) in
        [("servfail", ResponseCode::ServFail), ("refused", ResponseCode::Refused), ("nxdomain", ResponseCode::NXDomain)]
    {
        assert_eq!(one(kind).code("x.example."), code);
    }
    assert!(one("timeout").ask("x.example.", RecordType::MX, false).is_none());
    assert_eq!(one("null_mx").mx("x.example."), ["0 ."]);
    assert!(one("empty").mx("x.example.").is_empty());
    let fall_back = one("no_mx");
    assert!(fall_back.mx("x.example.").is_empty());
    assert_eq!(fall_back.address("x.example.").as_deref(), Some("127.16.0.1"));
}

#[test]
fn misleading_answers() {
    assert_eq!(one("loopback_mx").address("loopback0.x.example.").as_deref(), Some("127.0.0.1"));
    assert_eq!(one("self_mx").mx("x.example."), ["10 localhost.lab."]);
    assert_eq!(one("self_mx").address("localhost.lab.").as_deref(), Some("127.0.0.1"));
    assert_eq!(one("mx_is_address").mx("x.example."), ["10 127.16.0.1."]);
    let missing = one("mx_nxdomain");
    assert_eq!(missing.mx("x.example."), ["10 mx.does-not-exist.invalid."]);
    assert_eq!(missing.code("mx.does-not-exist.invalid."), ResponseCode::NXDomain);
    let wrong = one("wrong_name").ask("x.example.", RecordType::MX, true).expect("answered");
    assert!(wrong.answers.iter().all(|r| r.name.to_ascii() == "somebody-else.example."));
    assert_eq!(one("wrong_id").ask("x.example.", RecordType::MX, true).expect("answered").metadata.id, 78);
    let (garbage, _) = one("garbage").server.reply(&query("x.example.", RecordType::MX), false).expect("answered");
    assert!(Message::from_vec(&garbage).map_or(true, |m| m.metadata.id != 77));
}

#[test]
fn aliases() {
    let chain = one("cname_chain").ask("x.example.", RecordType::MX, true).expect("answered");
    assert_eq!(chain.answers.len(), 4 + 2);
    assert_eq!(one("cname_chain").mx("alias4.x.example.").len(), 2);
    let around = one("cname_loop").ask("x.example.", RecordType::MX, true).expect("answered");
    assert!(around.answers.len() == 2 && around.answers.iter().all(|r| r.record_type() == RecordType::CNAME));
    let own =
        server("[[record]]\nname='a.b'\ntype='CNAME'\nvalue='c.d.'\n[[record]]\nname='C.D'\ntype='TXT'\nvalue='hi'");
    assert_eq!(own.ask("a.b.", RecordType::TXT, true).expect("answered").answers.len(), 2);
}

#[test]
fn large_answers_are_truncated_by_udp_only() {
    let many = one("many_mx");
    let cut = many.ask("x.example.", RecordType::MX, false).expect("answered");
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let hosts = many.mx("x.example.");
    assert_eq!((hosts.len(), hosts[0].as_str()), (1000, "5 mx1.x.example."));
    assert_eq!(many.code("none7.x.example."), ResponseCode::NXDomain);
    let small = one("truncated");
    assert!(small.ask("x.example.", RecordType::MX, false).expect("answered").metadata.truncation);
    assert_eq!(small.mx("x.example.").len(), 2);
}

#[test]
fn junk_is_survived() {
    let dns = one("ok");
    let good = query("x.example.", RecordType::MX);
    for cut in 0..good.len() {
        let _ = dns.server.reply(&good[..cut], false);
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..2000 {
        let mut bad = good.clone();
        bad[rng.usize(..good.len())] = rng.u8(..);
        let _ = dns.server.reply(&bad, false);
    }
}

#[tokio::test]
async fn over_real_sockets() {
    let dns = one("truncated");
    let sockets = Sockets::bind(0).await.expect("binds");
    let address = sockets.address;
    let task = tokio::spawn(Arc::clone(&dns.server).run(sockets));
    let client = UdpSocket::bind("127.0.0.1:0").await.expect("binds");
    let question = query("x.example.", RecordType::MX);
    client.send_to(&question, address).await.expect("sent");
    let mut buffer = [0; 1500];
    let len = client.recv(&mut buffer).await.expect("answered");
    assert!(Message::from_vec(&buffer[..len]).expect("decodes").metadata.truncation);
    let mut stream = TcpStream::connect(address).await.expect("connects");
    for _ in 0..2 {
        stream.write_u16(question.len() as u16).await.expect("sent");
        stream.write_all(&question).await.expect("sent");
        let mut reply = vec![0; usize::from(stream.read_u16().await.expect("answered"))];
        stream.read_exact(&mut reply).await.expect("answered");
        assert_eq!(Message::from_vec(&reply).expect("decodes").answers.len(), 2);
    }
    assert_eq!((dns.server.stats().udp, dns.server.stats().tcp), (1, 2));
    task.abort();
}
