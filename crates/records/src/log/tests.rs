use proptest::prelude::*;

use super::*;
use crate::civil::{DAY_S, days};
use crate::record::Topic;

/// 2026-11-22 03:00 UTC.
const REFERENCE: Ms = 1_795_316_400_000;

fn parse_in(zone: Zone, text: &[u8]) -> (Vec<String>, Counters) {
    let mut parser = Parser::new(zone, REFERENCE);
    let mut records = Vec::new();
    let mut sink = |record: &Record<'_>| records.push(short(record));
    parser.block(text, &mut sink);
    parser.finish(&mut sink);
    (records, parser.counters())
}

fn parse(text: &str) -> Vec<String> {
    parse_in(Zone::utc(), text.as_bytes()).0
}

/// The fields that the tests check, on one line.
fn short(record: &Record<'_>) -> String {
    match record {
        Record::Accepted(r) => {
            let client = r.client.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
            format!(
                "{} accepted {} from={} size={} n={} msgid={} client={}[{client}] proto={}",
                r.at / 1000 % 86_400,
                r.id,
                r.from,
                r.size,
                r.recipients,
                r.message_id,
                r.client_host,
                r.proto
            )
        }
        Record::Attempt(r) => {
            let ip = r.ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
            format!(
                "{} {:?} {} {} to={} from={} host={}[{ip}]:{} delay={} xdelay={} dsn={} size={} tls={} reply={}",
                r.at / 1000 % 86_400,
                r.stat,
                r.mailer,
                r.id,
                r.to.join(","),
                r.from,
                r.host,
                r.port,
                r.delay_ms,
                r.xdelay_ms,
                r.dsn,
                r.size,
                r.tls,
                r.reply
            )
        }
        Record::Refused(r) => {
            let client = r.client.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
            format!("refused [{client}] step={} from={} to={} reply={}", r.step, r.from, r.to, r.reply)
        }
        Record::Note(r) => format!("note {} end={} {:?} {}", r.id, r.is_end, r.topic, r.text),
        Record::Machine(_) => "machine".to_owned(),
    }
}

#[test]
fn a_message_of_postfix_from_client_to_removed() {
    let records = parse(concat!(
        "Nov 22 02:00:00 mx postfix/smtpd[7]: connect from mail.lab[192.0.2.9]\n",
        "Nov 22 02:00:01 mx postfix/smtpd[7]: 4F0C1A2B3: client=mail.lab[192.0.2.9], sasl_method=PLAIN\n",
        "Nov 22 02:00:01 mx postfix/cleanup[8]: 4F0C1A2B3: message-id=<1@lab>\n",
        "Nov 22 02:00:01 mx postfix/qmgr[9]: 4F0C1A2B3: from=<a@lab>, size=321, nrcpt=3 (queue active)\n",
        "Nov 22 02:00:01 mx postfix/smtp[10]: Untrusted TLS connection established to mx.y[192.0.2.2]:25: TLSv1.3 with cipher X (256/256 bits)\n",
        "Nov 22 02:00:02 mx postfix/smtp[10]: 4F0C1A2B3: to=<b@y>, orig_to=<list@lab>, relay=mx.y[192.0.2.2]:25, conn_use=2, delay=1.2, delays=0.1/0/0.52/0.58, dsn=2.0.0, status=sent (250 2.0.0 ok, thanks)\n",
        "Nov 22 02:00:02 mx postfix/smtp[11]: 4F0C1A2B3: to=<c@z>, relay=none, delay=30, delays=0.1/0/30/0, dsn=4.4.1, status=deferred (connect to z[192.0.2.3]:25: Connection refused)\n",
        "Nov 22 02:00:02 mx postfix/smtp[12]: connect to z[192.0.2.3]:25: Connection refused\n",
        "Nov 22 02:00:03 mx postfix-out/lmtp[12]: 4F0C1A2B3: to=<d@w>, relay=w[192.0.2.4]:24, delay=2, delays=0.1/0/0.5/1, dsn=5.1.1, status=bounced (host w said: 550 5.1.1 no)\n",
        "Nov 22 02:05:00 mx postfix/qmgr[9]: 4F0C1A2B3: from=<a@lab>, size=321, nrcpt=3 (queue active)\n",
        "Nov 22 02:05:00 mx postfix/qmgr[9]: 4F0C1A2B3: from=<a@lab>, status=expired, returned to sender\n",
        "Nov 22 02:05:00 mx postfix/qmgr[9]: 4F0C1A2B3: removed\n",
    ));
    assert_eq!(
        records,
        [
            "7201 accepted 4F0C1A2B3 from=a@lab size=321 n=3 msgid=<1@lab> client=mail.lab[192.0.2.9] proto=ESMTP",
            "7202 Sent smtp 4F0C1A2B3 to=b@y from=a@lab host=mx.y[192.0.2.2]:25 delay=1200 xdelay=1100 dsn=2.0.0 size=321 tls=TLSv1.3 X reply=250 2.0.0 ok, thanks",
            "7202 Deferred smtp 4F0C1A2B3 to=c@z from=a@lab host=[-]:0 delay=30000 xdelay=30000 dsn=4.4.1 size=321 tls= reply=connect to z[192.0.2.3]:25: Connection refused",
            "note  end=false Delivery connect to z[192.0.2.3]:25: Connection refused",
            "7203 Bounced lmtp 4F0C1A2B3 to=d@w from=a@lab host=w[192.0.2.4]:24 delay=2000 xdelay=1500 dsn=5.1.1 size=321 tls= reply=host w said: 550 5.1.1 no",
            "7203 Bounced bounce 4F0C1A2B3 to=d@w from=a@lab host=w[192.0.2.4]:24 delay=2000 xdelay=1500 dsn=5.1.1 size=321 tls= reply=host w said: 550 5.1.1 no",
            "7500 Expired bounce 4F0C1A2B3 to=c@z from=a@lab host=[-]:0 delay=299000 xdelay=0 dsn=4.4.7 size=321 tls= reply=expired",
            "note 4F0C1A2B3 end=true Server removed",
        ]
    );
}

#[test]
fn refusals_of_postfix_and_long_queue_ids() {
    let records = parse(concat!(
        "Nov 22 02:00:00 mx postfix/smtpd[7]: NOQUEUE: reject: RCPT from unknown[2001:db8::1]: 554 5.7.1 <b@y>: Relay access denied; from=<a@x> to=<b@y> proto=ESMTP helo=<h>\n",
        "2026-11-22T03:00:00.25+01:00 mx postfix/qmgr[9]: 3Z2mFs1bCgz4wk: from=<>, size=9, nrcpt=1 (queue active)\n",
        "Nov 22 02:00:00 mx postfix/smtpd[7]: warning: hostname x does not resolve\n",
    ));
    assert_eq!(
        records,
        [
            "refused [2001:db8::1] step=RCPT from=a@x to=b@y reply=554 5.7.1 <b@y>: Relay access denied",
            "7200 accepted 3Z2mFs1bCgz4wk from= size=9 n=1 msgid= client=[-] proto=",
        ]
    );
}

#[test]
fn sendmail_with_several_recipients_and_all_kinds_of_outcome() {
    let records = parse(concat!(
        "Nov 22 02:00:00 ace sm-mta[5]: 4AM20aBc000005: from=<a@x>, size=100, class=-60, nrcpts=4, msgid=<1@x, y>, proto=ESMTP, daemon=MTA-v4, relay=h.x [192.0.2.1] (may be forged)\n",
        "Nov 22 02:00:07 ace sm-mta[6]: STARTTLS=client, relay=mx.y., version=TLSv1.3, verify=FAIL, cipher=C, bits=256/256\n",
        "Nov 22 02:00:07 ace sm-mta[6]: 4AM20aBc000005: to=<b@y>,<\"c, d>\"@y>, ctladdr=<a@x> (101/0), delay=00:00:07, xdelay=00:00:06, mailer=esmtp, pri=1, relay=mx.y. [192.0.2.2], dsn=2.0.0, stat=Sent (ok, stat=x)\n",
        "Nov 22 02:00:08 ace sm-mta[6]: 4AM20aBc000005: to=<e@z>, delay=1+00:00:08, xdelay=00:00:01, mailer=esmtp, pri=1, relay=z., dsn=4.0.0, stat=Deferred: Connection refused by z.\n",
        "Nov 22 02:00:08 ace sm-mta[6]: 4AM20aBc000005: to=<f@w>, delay=00:00:08, xdelay=00:00:01, mailer=esmtp, pri=1, relay=w [192.0.2.4], dsn=5.1.1, reply=550 5.1.1 who, me?, stat=User unknown\n",
        "Nov 22 02:00:08 ace sm-mta[6]: 4AM20aBc000005: 4AM20aBd000006: DSN: User unknown\n",
        "Nov 22 02:00:09 ace sm-mta[6]: 4AM20aBc000005: 4AM20aBe000006: sender notify: Cannot send message for 5 days\n",
        "Nov 22 02:00:09 ace sendmail[6]: 4AM20aBf000007: to=g@w, mailer=esmtp, pri=1, dsn=4.4.3, stat=queued\n",
        "Nov 22 02:00:09 ace sm-mta[6]: 4AM20aBg000008: ruleset=check_rcpt, arg1=<b@y>, relay=[192.0.2.9], reject=550 5.7.1 <b@y>... Relaying denied\n",
        "Sep  6 10:54:25 ace sendmail[24338]: KAA24336: to=u@example.gov, ctladdr=k (101/0), delay=00:00:07, xdelay=00:00:06, mailer=smtp, relay=mailhub.example.gov. [192.0.2.34], stat=Sent (Message received and queued)\n",
    ));
    assert_eq!(
        records,
        [
            "7200 accepted 4AM20aBc000005 from=a@x size=100 n=4 msgid=<1@x, y> client=h.x[192.0.2.1] proto=ESMTP",
            "7207 Sent esmtp 4AM20aBc000005 to=b@y,\"c, d>\"@y from=a@x host=mx.y[192.0.2.2]:0 delay=7000 xdelay=6000 dsn=2.0.0 size=100 tls=TLSv1.3 C reply=ok, stat=x",
            "7208 Deferred esmtp 4AM20aBc000005 to=e@z from=a@x host=z[-]:0 delay=86408000 xdelay=1000 dsn=4.0.0 size=100 tls= reply=Connection refused by z.",
            "7208 Bounced esmtp 4AM20aBc000005 to=f@w from=a@x host=w[192.0.2.4]:0 delay=8000 xdelay=1000 dsn=5.1.1 size=100 tls= reply=550 5.1.1 who, me?",
            "7208 Bounced bounce 4AM20aBc000005 to=f@w from=a@x host=w[192.0.2.4]:0 delay=8000 xdelay=1000 dsn=5.1.1 size=100 tls= reply=550 5.1.1 who, me?",
            "note 4AM20aBc000005 end=false Server 4AM20aBd000006: DSN: User unknown",
            "7209 Expired bounce 4AM20aBc000005 to=e@z from=a@x host=[-]:0 delay=9000 xdelay=0 dsn=4.4.7 size=100 tls= reply=Cannot send message for too long",
            "note 4AM20aBc000005 end=false Server 4AM20aBe000006: sender notify: Cannot send message for 5 days",
            "note 4AM20aBf000007 end=false Server queued",
            "refused [192.0.2.9] step= from= to=b@y reply=550 5.7.1 <b@y>... Relaying denied",
            "39265 Sent smtp KAA24336 to=u@example.gov from= host=mailhub.example.gov[192.0.2.34]:0 delay=7000 xdelay=6000 dsn= size=0 tls= reply=Message received and queued",
        ]
    );
}

#[test]
fn exim_with_its_flags_and_zones() {
    let records = parse(concat!(
        "2026-11-22 02:00:00 1tEk2j-000abc-1x <= a@x H=h.x (helo) [192.0.2.1]:4711 P=esmtp S=321 id=1@x from <a@x> for b@y c@y\n",
        "2026-11-22 03:00:01.5 +0100 [77] 1tEk2j-000abc-1x => b@y <orig@z> R=dnslookup T=remote_smtp H=mx.y [192.0.2.2]:25 X=TLS1.3:E:256 CV=no C=\"250 2.0.0 ok\" QT=1m1.5s DT=0.25s\n",
        "2026-11-22 02:00:02 1tEk2j-000abc-1x == c@y R=dnslookup T=remote_smtp defer (111): Connection refused\n",
        "2026-11-22 02:00:02 1tEk2j-000abc-1x == c@y R=dnslookup T=remote_smtp defer (-44) H=mx.y [192.0.2.2] DT=0.500s: SMTP error from remote mail server after RCPT TO:<c@y>: 451 4.7.1 later\n",
        "2026-11-22 02:00:03 1tEk2j-000abc-1x ** d@y R=dnslookup T=remote_smtp H=mx.y [192.0.2.2]: SMTP error from remote mail server after RCPT TO:<d@y>: 550 5.1.1 no\n",
        "2026-11-22 02:00:04 1tEk2j-000abc-1x ** e@nowhere: Unrouteable address\n",
        "2026-11-22 02:00:05 1tEk2j-000abc-1x ** c@y R=dnslookup T=remote_smtp: retry timeout exceeded\n",
        "2026-11-22 02:00:05 1tEk2j-000abc-1x Completed\n",
        "2026-11-22 02:00:06 H=(bad) [192.0.2.9] F=<a@x> rejected RCPT <q@y>: relay not permitted\n",
        "Nov 22 02:00:07 mx exim[9]: 2026-11-22 02:00:07 1tEk2j-00000000abc-1xyz <= <> R=1tEk2j-000abc-1x U=mail P=local S=1\n",
        "2026-11-22 02:00:08 Start queue run: pid=9\n",
    ));
    assert_eq!(
        records,
        [
            "7200 accepted 1tEk2j-000abc-1x from=a@x size=321 n=2 msgid=1@x client=h.x[192.0.2.1] proto=esmtp",
            "7201 Sent remote_smtp 1tEk2j-000abc-1x to=orig@z from=a@x host=mx.y[192.0.2.2]:25 delay=61500 xdelay=250 dsn=2.0.0 size=321 tls=TLS1.3:E:256 reply=250 2.0.0 ok",
            "7202 Deferred remote_smtp 1tEk2j-000abc-1x to=c@y from=a@x host=[-]:0 delay=2000 xdelay=0 dsn= size=321 tls= reply=Connection refused",
            "7202 Deferred remote_smtp 1tEk2j-000abc-1x to=c@y from=a@x host=mx.y[192.0.2.2]:0 delay=2000 xdelay=500 dsn=4.7.1 size=321 tls= reply=SMTP error from remote mail server after RCPT TO:<c@y>: 451 4.7.1 later",
            "7203 Bounced remote_smtp 1tEk2j-000abc-1x to=d@y from=a@x host=mx.y[192.0.2.2]:0 delay=3000 xdelay=0 dsn=5.1.1 size=321 tls= reply=SMTP error from remote mail server after RCPT TO:<d@y>: 550 5.1.1 no",
            "7203 Bounced bounce 1tEk2j-000abc-1x to=d@y from=a@x host=mx.y[192.0.2.2]:0 delay=3000 xdelay=0 dsn=5.1.1 size=321 tls= reply=SMTP error from remote mail server after RCPT TO:<d@y>: 550 5.1.1 no",
            "7204 Bounced  1tEk2j-000abc-1x to=e@nowhere from=a@x host=[-]:0 delay=4000 xdelay=0 dsn= size=321 tls= reply=Unrouteable address",
            "7204 Bounced bounce 1tEk2j-000abc-1x to=e@nowhere from=a@x host=[-]:0 delay=4000 xdelay=0 dsn= size=321 tls= reply=Unrouteable address",
            "7205 Expired bounce 1tEk2j-000abc-1x to=c@y from=a@x host=[-]:0 delay=5000 xdelay=0 dsn= size=321 tls= reply=retry timeout exceeded",
            "note 1tEk2j-000abc-1x end=true Server Completed",
            "refused [192.0.2.9] step= from=a@x to=q@y reply=RCPT <q@y>: relay not permitted",
            "7207 accepted 1tEk2j-00000000abc-1xyz from= size=1 n=0 msgid= client=[-] proto=local",
        ]
    );
}

#[test]
fn our_own_log_in_both_forms() {
    let records = parse(concat!(
        "Nov 22 02:00:00 mx stentor[9]: 0CX8M4H00000: from=<l@x>, size=4096, class=-60, nrcpts=2, msgid=<1@x>, proto=ESMTP, relay=c.x [192.0.2.1]\n",
        "Nov 22 02:00:07 mx stentor[9]: 0CX8M4H00000: to=<a@y>,<c@y>, from=<l@x>, delay=00:00:07, xdelay=00:00:06, mailer=esmtp, relay=mx.y. [192.0.2.34], dsn=5.1.1, stat=Bounced: 550 5.1.1 no\n",
        "Nov 22 02:00:07 mx stentor[9]: 0CX8M4H00000: to=<a@y>, from=<l@x>, delay=00:00:07, xdelay=00:00:00, mailer=bounce, relay=none, dsn=5.1.1, stat=Bounced: no\n",
        "Nov 22 02:00:08 mx stentor[9]: connect: relay=mx.z. [192.0.2.35], port=25, xdelay=0.001, dsn=4.4.1, stat=Deferred: Connection refused\n",
        "{\"time\":\"2026-11-22T02:00:09.250Z\",\"host\":\"mx\",\"pid\":9,\"event\":\"attempt\",\"id\":\"0CX8M4H00000\",\"to\":[\"a\\\"@y\"],\"from\":\"\",\"delay_ms\":7250,\"xdelay_ms\":6001,\"mailer\":\"esmtp\",\"relay\":{\"host\":\"mx.y\",\"ip\":\"192.0.2.34\",\"port\":25},\"dsn\":\"2.0.0\",\"stat\":\"Sent\",\"reply\":\"250 ok\"}\n",
        "{\"time\":\"2026-11-22T02:00:09.250Z\",\"event\":\"accepted\",\"id\":\"0CX8M4H00001\",\"from\":\"l@x\",\"size\":9,\"class\":-60,\"nrcpts\":2,\"msgid\":\"<1@x>\",\"proto\":\"ESMTP\",\"relay\":null}\n",
    ));
    assert_eq!(
        records,
        [
            "7200 accepted 0CX8M4H00000 from=l@x size=4096 n=2 msgid=<1@x> client=c.x[192.0.2.1] proto=ESMTP",
            "7207 Bounced esmtp 0CX8M4H00000 to=a@y,c@y from=l@x host=mx.y[192.0.2.34]:0 delay=7000 xdelay=6000 dsn=5.1.1 size=4096 tls= reply=550 5.1.1 no",
            "7207 Bounced bounce 0CX8M4H00000 to=a@y from=l@x host=[-]:0 delay=7000 xdelay=0 dsn=5.1.1 size=4096 tls= reply=no",
            "note  end=false Delivery connect: relay=mx.z. [192.0.2.35], port=25, xdelay=0.001, dsn=4.4.1, stat=Deferred: Connection refused",
            "7209 Sent esmtp 0CX8M4H00000 to=a\"@y from= host=mx.y[192.0.2.34]:25 delay=7250 xdelay=6001 dsn=2.0.0 size=0 tls= reply=250 ok",
            "7209 accepted 0CX8M4H00001 from=l@x size=9 n=2 msgid=<1@x> client=[-] proto=ESMTP",
        ]
    );
}

/// Times of sendmail's lines, as dates in UTC.
fn dates(reference: Ms, stamps: &[&str]) -> Vec<String> {
    let mut parser = Parser::new(Zone::utc(), reference);
    let mut found = Vec::new();
    for stamp in stamps {
        let line = format!("{stamp} mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n");
        parser.block(line.as_bytes(), &mut |record| {
            let civil = crate::civil::Civil::of(record.at(), &Zone::utc());
            found.push(format!("{} {:02}:{:02}:{:02}", civil.date_text(), civil.hour, civil.minute, civil.second));
        });
    }
    found
}

fn at(year: i64, month: u32, day: u32) -> Ms {
    (days(year, month, day) * DAY_S).cast_unsigned() * 1000
}

#[test]
fn the_year_that_is_not_written_is_the_latest_possible() {
    assert_eq!(
        dates(REFERENCE, &["Nov 22 03:00:00", "Nov 22 03:00:59"]),
        ["2026-11-22 03:00:00", "2026-11-22 03:00:59"]
    );
    // Clocks differ by some hours, but a date two days ahead was last year's.
    assert_eq!(dates(REFERENCE, &["Nov 23 00:00:00"]), ["2026-11-23 00:00:00"]);
    assert_eq!(dates(REFERENCE, &["Nov 25 00:00:00"]), ["2025-11-25 00:00:00"]);
    // Across the end of the year, with a line that comes late.
    assert_eq!(
        dates(at(2026, 1, 3), &["Dec 31 23:59:59", "Jan  1 00:00:00", "Dec 31 23:59:58", "Jan  2 00:00:00"]),
        ["2025-12-31 23:59:59", "2026-01-01 00:00:00", "2025-12-31 23:59:58", "2026-01-02 00:00:00"]
    );
    assert_eq!(
        dates(at(2026, 3, 5), &["Feb 29 12:00:00", "Mar  1 00:00:00"]),
        ["2024-02-29 12:00:00", "2024-03-01 00:00:00"]
    );
    assert_eq!(dates(REFERENCE, &["Nov 22 03:00:60"]), ["2026-11-22 03:01:00"], "a leap second");
}

#[test]
fn each_file_has_its_own_year() {
    let line = "Nov 20 03:00:00 mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n";
    let mut parser = Parser::new(Zone::utc(), at(2024, 11, 21));
    let mut years = Vec::new();
    let mut sink = |record: &Record<'_>| years.push(crate::civil::Civil::of(record.at(), &Zone::utc()).year);
    parser.block(line.as_bytes(), &mut sink);
    parser.file(REFERENCE, &mut sink);
    parser.block(line.as_bytes(), &mut sink);
    assert_eq!(years, [2024, 2026]);
}

#[test]
fn times_are_the_zones_unless_they_say_theirs() {
    let lines = concat!(
        "Nov 22 03:00:00 mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n",
        "2026-11-22T03:00:00 mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n",
        "2026-11-22T03:00:00+0100 mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n",
        "2026-11-22T03:00:00Z mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n",
        "<22>1 2026-11-22T03:00:00Z mx sendmail 1 - - 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n",
    );
    let (records, counters) = parse_in(Zone::fixed(7200), lines.as_bytes());
    let times: Vec<&str> = records.iter().filter_map(|record| record.split(' ').next()).collect();
    assert_eq!(times, ["3600", "3600", "7200", "10800", "10800"]);
    assert_eq!(counters.not_understood, 0);
}

#[test]
fn what_cannot_be_read_is_counted_and_passed_over() {
    let good = "Nov 22 03:00:00 mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0, stat=Sent (ok)\n";
    let mut text = Vec::new();
    for broken in [
        &b"Nov 22 03:00"[..],
        b"\xff\xfe\x00binary",
        b"Nov 22 03:00:00 mx postfix/smtp[1]: 4F0C1A2B3: to=<a@x",
        b"Nov 22 03:00:00 mx sendmail[1]: 4AM20aBc000005: to=<a@x>, dsn=2.0.0",
        b"Nov 42 03:00:00 mx sendmail[1]: x",
        b"{\"time\":",
        b"\0\0\0\0",
    ] {
        text.extend_from_slice(broken);
        text.push(b'\n');
        text.extend_from_slice(good.as_bytes());
    }
    text.extend(std::iter::repeat_n(b'x', LINE_BYTES_MAX + 1));
    text.push(b'\n');
    // Zeros before a line, a carriage return after it, an empty line, no line end at the end.
    text.extend_from_slice(b"\0\0");
    text.extend_from_slice(good.trim_end().as_bytes());
    text.extend_from_slice(b"\r\n\n");
    text.extend_from_slice(good.trim_end().as_bytes());
    let (records, counters) = parse_in(Zone::utc(), &text);
    assert_eq!(records.len(), 9);
    assert_eq!(counters, Counters { lines: 18, bytes: text.len() as u64, records: 9, other: 1, not_understood: 8 });
}

#[test]
fn blocks_may_end_anywhere() {
    let text = concat!(
        "Nov 22 02:00:01 mx postfix/qmgr[9]: 4F0C1A2B3: from=<a@lab>, size=321, nrcpt=3 (queue active)\n",
        "Nov 22 02:00:02 mx postfix/smtp[10]: 4F0C1A2B3: to=<b@y>, relay=mx.y[192.0.2.2]:25, delay=1.2, delays=0.1/0/0.52/0.58, dsn=2.0.0, status=sent (250 2.0.0 ok, thanks)\n",
        "Nov 22 02:00:03 mx postfix/qmgr[9]: 4F0C1A2B3: removed",
    );
    let (whole, counters) = parse_in(Zone::utc(), text.as_bytes());
    assert_eq!(whole.len(), 3);
    for size in [1, 2, 3, 7, 64, 100] {
        let mut parser = Parser::new(Zone::utc(), REFERENCE);
        let mut records = Vec::new();
        let mut sink = |record: &Record<'_>| records.push(short(record));
        text.as_bytes().chunks(size).for_each(|block| parser.block(block, &mut sink));
        parser.finish(&mut sink);
        assert_eq!((&records, parser.counters()), (&whole, counters), "{size}");
    }
}

#[test]
fn notes_about_hosts_are_told_from_others() {
    let mut topics = Vec::new();
    let mut parser = Parser::new(Zone::utc(), REFERENCE);
    parser.block(
        b"Nov 22 02:00:02 mx postfix/smtp[12]: connect to z[192.0.2.3]:25: Connection refused\n",
        &mut |record| {
            if let Record::Note(note) = record {
                topics.push(note.topic);
            }
        },
    );
    assert_eq!(topics, [Topic::Delivery]);
}

/// Log lines intact, truncated, mixed and corrupted.
fn spoiled() -> impl Strategy<Value = Vec<u8>> {
    let lines = [
        "Nov 22 02:00:01 mx postfix/qmgr[9]: 4F0C1A2B3: from=<a@lab>, size=321, nrcpt=3 (queue active)",
        "Nov 22 02:00:02 mx postfix/smtp[1]: 4F0C1A2B3: to=<b@y>, relay=y[192.0.2.2]:25, delay=1.2, delays=0.1/0/0.5/0.5, dsn=2.0.0, status=sent (250 ok)",
        "Nov 22 02:00:02 mx postfix/smtpd[7]: NOQUEUE: reject: RCPT from h[192.0.2.1]: 554 5.7.1 <b@y>: no; from=<a@x> to=<b@y> proto=ESMTP",
        "Nov 22 02:00:02 mx postfix/qmgr[9]: 4F0C1A2B3: from=<a@lab>, status=expired, returned to sender",
        "Nov 22 02:00:07 ace sm-mta[6]: 4AM20aBc000005: to=<b@y>,\"c\", [more], delay=1+00:00:07, xdelay=00:00:06, relay=mx.y. [IPv6:2001:db8::1], dsn=4.0.0, stat=Deferred: x",
        "<22>1 2026-11-22T03:00:00.123456789+01:00 mx sendmail 1 - - 4AM20aBc000005: from=<a@x>, size=1, nrcpts=1",
        "2026-11-22 03:00:01.5 +0100 [77] 1tEk2j-000abc-1x => \"b c\"@y <o@z> R=r T=t H=h [192.0.2.2]:25 C=\"250 ok\" QT=1m1.5s DT=9w0.25s",
        "2026-11-22 02:00:03 1tEk2j-000abc-1x ** d@y R=r T=t H=h [192.0.2.2]: SMTP error: 550 5.1.1 no",
        "{\"time\":\"2026-11-22T02:00:09.250Z\",\"event\":\"attempt\",\"id\":\"0\",\"to\":[\"a@y\"],\"stat\":\"Sent\"}",
    ];
    let line = (
        prop::sample::select(lines.to_vec()),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        any::<prop::sample::Index>(),
        any::<bool>(),
    )
        .prop_map(|(line, changes, cut, cuts)| {
            let mut bytes = line.as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if cuts {
                bytes.truncate(cut.index(bytes.len()));
            }
            bytes.push(b'\n');
            bytes
        });
    prop::collection::vec(line, 1..20).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (_, counters) = parse_in(Zone::utc(), &text);
        prop_assert_eq!(counters.bytes, text.len() as u64);
    }

    #[test]
    fn spoiled_lines_are_read_or_counted_wherever_blocks_end(text in spoiled(), size in 1_usize..300) {
        let (whole, counters) = parse_in(Zone::fixed(3600), &text);
        let mut parser = Parser::new(Zone::fixed(3600), REFERENCE);
        let mut records = Vec::new();
        let mut sink = |record: &Record<'_>| records.push(short(record));
        text.chunks(size).for_each(|block| parser.block(block, &mut sink));
        parser.finish(&mut sink);
        prop_assert_eq!(records, whole);
        prop_assert_eq!(parser.counters(), counters);
        prop_assert!(counters.other + counters.not_understood <= counters.lines);
    }
}

/// Both forms of a failed session and look-up name the waiting recipients.
#[test]
fn our_failed_sessions_say_who_waited() {
    let lines = concat!(
        "Nov 22 02:00:01 mx stentor[9]: connect: relay=mx.z. [192.0.2.3], port=25, xdelay=1.250, site=mx.z, waiting=12, domains=z.example:10,y.example:2, dsn=4.4.1, stat=Deferred: Connection refused\n",
        "Nov 22 02:00:02 mx stentor[9]: lookup: xdelay=0.100, waiting=3, domains=w.example:3, dsn=4.4.3, stat=Deferred: SERVFAIL, twice\n",
        "{\"time\":\"2026-11-22T02:00:03.000Z\",\"event\":\"attempt\",\"to\":[],\"mailer\":\"esmtp\",\"relay\":{\"host\":\"mx.z\",\"ip\":\"192.0.2.3\",\"port\":25},\"dsn\":\"4.4.1\",\"stat\":\"Deferred\",\"reply\":\"no\",\"site\":\"mx.z\",\"waiting\":12,\"domains\":[[\"z.example\",10]]}\n",
        "Nov 22 02:00:04 mx stentor[9]: connect: relay=mx.z. [192.0.2.3], port=25, xdelay=1.250, dsn=4.4.1, stat=Deferred: as older ones wrote\n",
    );
    let mut parser = Parser::new(Zone::utc(), REFERENCE);
    let mut found = Vec::new();
    parser.block(lines.as_bytes(), &mut |record| match record {
        Record::Attempt(a) => {
            let unreached = a.unreached.as_ref().expect("who waited");
            let domains: Vec<String> =
                unreached.domains.iter().map(|(name, count)| format!("{name} {count}")).collect();
            let host = (a.host, a.port, a.xdelay_ms, a.is_look_up());
            found.push(format!("{host:?} {} {} {domains:?} {}", unreached.site, unreached.waiting, a.reply));
        }
        Record::Note(note) => found.push(note.text[..8].to_owned()),
        _ => panic!("{record:?}"),
    });
    let expected = [
        r#"("mx.z", 25, 1250, false) mx.z 12 ["z.example 10", "y.example 2"] Connection refused"#,
        r#"("", 0, 100, true)  3 ["w.example 3"] SERVFAIL, twice"#,
        r#"("mx.z", 25, 0, false) mx.z 12 ["z.example 10"] no"#,
        "connect:",
    ];
    assert_eq!(found, expected);
}
