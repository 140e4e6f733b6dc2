use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use proptest::prelude::*;
use rawzip::ZipArchiveWriter;

use super::*;
use crate::{DAY_MS, Submitter};

const DAY: u64 = 20_000;
const NOW: u64 = DAY * DAY_MS + 12 * 3_600_000;
const US: Submitter<'_> = Submitter {
    hostname: "mx.receiver.example",
    organization: "Receiver <&> Sons",
    contact: "postmaster@receiver.example",
    from: "dmarc@receiver.example",
};

/// The structure of the sample in RFC 9990, appendix B, with other data.
const RFC_9990: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<feedback xmlns="urn:ietf:params:xml:ns:dmarc-2.0" xmlns:ext="urn:example:ext">
  <version>1.0</version>
  <report_metadata>
    <org_name>Reporter &amp; Co</org_name><email>reports@reporter.example</email>
    <extra_contact_info>https://reporter.example/</extra_contact_info>
    <report_id>3v98@reporter.example</report_id>
    <date_range><begin>1728000000</begin><end>1728086399</end></date_range>
    <error>the tag "x" is unknown</error>
    <generator>Example 1.2</generator>
  </report_metadata>
  <policy_published>
    <domain>Example.com</domain><p>quarantine</p><sp>none</sp><np>reject</np><testing>n</testing>
    <discovery_method>treewalk</discovery_method>
  </policy_published>
  <extension><ext:never>1</ext:never></extension>
  <record>
    <row>
      <source_ip>2001:db8::1</source_ip><count>123</count>
      <policy_evaluated>
        <disposition>pass</disposition><dkim>pass</dkim><spf>fail</spf>
        <reason><type>other</type><comment><![CDATA[a <b>]]></comment></reason>
      </policy_evaluated>
    </row>
    <identifiers><envelope_from/><header_from>News.Example.com</header_from></identifiers>
    <auth_results>
      <dkim><domain>example.com</domain><selector>abc123</selector><result>pass</result></dkim>
      <dkim><domain>other.example</domain><selector>x</selector><result>fail</result></dkim>
      <spf><domain>bounces.example.org</domain><scope>mfrom</scope><result>fail</result></spf>
      <spf><domain>helo.example</domain><scope>helo</scope><result>pass</result></spf>
    </auth_results>
    <ext:row><count>9</count></ext:row>
  </record>
</feedback>
"#;

fn row(source: &str) -> ReportRow {
    ReportRow {
        source: source.parse().unwrap(),
        disposition: ReportDisposition::Reject,
        is_dkim_aligned: false,
        is_spf_aligned: false,
        reasons: Vec::new(),
        header_from: "a.test".to_owned(),
        envelope_from: Some("b.test".to_owned()),
        dkim: vec![DkimEntry { domain: "b.test".to_owned(), selector: "s".to_owned(), result: "pass".to_owned() }],
        spf: Some(SpfEntry { domain: "b.test".to_owned(), result: "pass".to_owned() }),
    }
}

fn policy() -> PublishedPolicy {
    PublishedPolicy {
        domain: "a.test".to_owned(),
        policy: "reject".to_owned(),
        subdomains: Some("none".to_owned()),
        is_spf_strict: true,
        ..PublishedPolicy::default()
    }
}

fn gzip(octets: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(octets).unwrap();
    gzip.finish().unwrap()
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut archive = ZipArchiveWriter::new(&mut out);
    for (name, octets) in files {
        let method = rawzip::CompressionMethod::DEFLATE;
        let (mut entry, config) = archive.new_file(*name).compression_method(method).start().unwrap();
        let mut writer = config.wrap(DeflateEncoder::new(&mut entry, Compression::best()));
        writer.write_all(octets).unwrap();
        let (encoder, descriptor) = writer.finish().unwrap();
        encoder.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    out
}

/// A message with attachments.
fn message_of(files: &[&[u8]]) -> Vec<u8> {
    use base64ct::{Base64, Encoding as _};
    let mut text =
        "From: a@b.test\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n".to_owned();
    for file in files {
        text += "--x\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n";
        for line in Base64::encode_string(file).as_bytes().chunks(76) {
            text += std::str::from_utf8(line).unwrap();
            text += "\r\n";
        }
    }
    (text + "--x--\r\n").into_bytes()
}

fn message(media_type: &str, octets: &[u8]) -> Vec<u8> {
    use base64ct::{Base64, Encoding as _};
    let text = Base64::encode_string(octets);
    let lines: Vec<&str> = text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!(
        "From: a@b.test\r\nSubject: Report Domain: a.test\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nA report.\r\n\
         --x\r\nContent-Type: {media_type}; name=\"r\"\r\nContent-Disposition: attachment\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{}\r\n--x--\r\n",
        lines.join("\r\n")
    )
    .into_bytes()
}

#[test]
fn a_report_has_the_elements_of_the_rfc_in_their_order() {
    let mut counts = DmarcCounts::default();
    for source in ["192.0.2.1", "192.0.2.2", "192.0.2.2"] {
        counts.message(&policy(), row(source), NOW);
    }
    let report = dmarc_report("a.test", DAY, counts.of(DAY, "a.test").unwrap(), US);
    let id = &report.id;
    assert_eq!(report.file_name, format!("receiver.example!a.test!1728000000!1728086399!{id}.xml.gz"));
    let names: Vec<&str> =
        report.text.lines().filter_map(|line| line.trim().strip_prefix('<')?.split('>').next()).collect();
    let record = "record row source_ip count policy_evaluated disposition dkim spf /policy_evaluated /row identifiers \
                  header_from envelope_from /identifiers auth_results dkim domain selector result /dkim spf domain scope \
                  result /spf /auth_results /record";
    let wanted = format!(
        "?xml version=\"1.0\" encoding=\"UTF-8\"? feedback xmlns=\"urn:ietf:params:xml:ns:dmarc-2.0\" version \
         report_metadata org_name email report_id date_range begin end /date_range generator /report_metadata \
         policy_published domain discovery_method p sp adkim aspf testing /policy_published {record} {record} /feedback"
    );
    assert_eq!(names.join(" "), wanted);
    for line in [
        "<org_name>Receiver &lt;&amp;&gt; Sons</org_name>",
        "<begin>1728000000</begin>",
        "<end>1728086399</end>",
        "<adkim>r</adkim>",
        "<aspf>s</aspf>",
        "<scope>mfrom</scope>",
    ] {
        assert!(report.text.lines().any(|of| of.trim() == line), "{line}: {}", report.text);
    }
    // The row with most messages is the first, and the same counts give the same report.
    let read = read_xml(report.text.as_bytes()).unwrap();
    let counted: Vec<_> = read.rows.iter().map(|one| (one.messages, one.row.source.to_string())).collect();
    assert_eq!(counted, [(2, "192.0.2.2".to_owned()), (1, "192.0.2.1".to_owned())]);
    assert_eq!(read.rows[1].row, row("192.0.2.1"));
    assert_eq!((read.policy, read.id, read.organization), (policy(), report.id.clone(), US.organization.to_owned()));
    let kept = DmarcCounts::read(&counts.write()).unwrap();
    assert_eq!(dmarc_report("a.test", DAY, kept.of(DAY, "a.test").unwrap(), US), report);
}

#[test]
fn the_message_carries_the_report_and_names_it_in_its_subject() {
    let mut counts = DmarcCounts::default();
    counts.message(&policy(), row("192.0.2.1"), NOW);
    let report = dmarc_report("a.test", DAY, counts.of(DAY, "a.test").unwrap(), US);
    let message = report.message("rua@a.test", "<1.dmarc-report@mx.receiver.example>", NOW, US);
    let text = String::from_utf8(message.clone()).unwrap();
    let subject = format!("Subject: Report Domain: a.test Submitter: receiver.example Report-ID: <{}>", report.id);
    let unfolded = text.replace("\r\n ", " ");
    for line in [&*subject, "From: <dmarc@receiver.example>", "To: <rua@a.test>", "Content-Type: application/gzip"] {
        assert!(unfolded.lines().any(|of| of == line), "{line}: {unfolded}");
    }
    assert!(!text.contains("TLS-"));
    assert_eq!(read_reports(&message).unwrap(), [read_xml(report.text.as_bytes()).unwrap()]);
}

#[test]
fn rows_beyond_the_limit_are_counted_and_said() {
    let mut counts = DmarcCounts::default();
    for n in 0..ROWS_MAX + 7 {
        let header_from = format!("{n}.{}", "é".repeat(300));
        counts.message(&policy(), ReportRow { header_from, ..row("192.0.2.1") }, NOW);
    }
    let count = counts.of(DAY, "a.test").unwrap();
    assert_eq!((count.rows().len(), count.uncounted), (ROWS_MAX, 7));
    assert!(count.rows().iter().all(|one| one.row.header_from.len() <= 255));
    let read = read_xml(dmarc_report("a.test", DAY, count, US).text.as_bytes()).unwrap();
    assert_eq!(read.errors, ["7 messages are in no record: too many different records"]);
}

#[test]
fn reports_of_both_rfcs_are_read() {
    let report = read_xml(RFC_9990.as_bytes()).unwrap();
    assert_eq!((&*report.organization, &*report.id), ("Reporter & Co", "3v98@reporter.example"));
    assert_eq!((report.begin_s, report.end_s, report.errors.len()), (1_728_000_000, 1_728_086_399, 1));
    assert_eq!((&*report.policy.domain, &*report.policy.policy), ("example.com", "quarantine"));
    assert_eq!(report.policy.missing_subdomains.as_deref(), Some("reject"));
    let [counted] = &report.rows[..] else { panic!("{report:?}") };
    // Elements of extensions are not those of the report.
    assert_eq!((counted.messages, counted.row.disposition), (123, ReportDisposition::Pass));
    assert!(counted.row.is_dkim_aligned && !counted.row.is_spf_aligned);
    assert_eq!(counted.row.reasons, [OverrideReason { kind: "other".to_owned(), comment: "a <b>".to_owned() }]);
    assert_eq!((&*counted.row.header_from, counted.row.envelope_from.as_deref()), ("news.example.com", Some("")));
    assert_eq!((counted.row.dkim.len(), &*counted.row.dkim[0].selector), (2, "abc123"));
    assert_eq!(counted.row.spf, Some(SpfEntry { domain: "bounces.example.org".to_owned(), result: "fail".to_owned() }));
    let prefixed = RFC_9990.replace("ext:", "e-").replace("</", "</d:").replace('<', "<d:").replace("<d:/d:", "</d:");
    let prefixed =
        prefixed.replace("<d:?", "<?").replace("xmlns=", "xmlns:d=").replace("<d:![CDATA[a <d:b>", "<![CDATA[a <b>");
    assert_eq!(read_xml(prefixed.as_bytes()).unwrap(), report);
    let unescaped = RFC_9990.replace("Reporter &amp; Co", "Reporter & Co");
    assert_eq!(read_xml(unescaped.as_bytes()).unwrap(), report);
    // RFC 7489: no namespace, pct, one record for each; and a byte order mark.
    let old = RFC_9990
        .replace(" xmlns=\"urn:ietf:params:xml:ns:dmarc-2.0\"", "")
        .replace("<np>reject</np>", "<pct>100</pct>");
    let old = format!("\u{feff}{}", old.replace(">pass</disposition>", ">none</disposition>"));
    let found = read_reports(old.as_bytes()).unwrap();
    assert_eq!(found[0].rows[0].row.disposition, ReportDisposition::None);
}

#[test]
fn reports_are_found_in_archives_and_messages() {
    let xml = RFC_9990.as_bytes();
    let wanted = vec![read_xml(xml).unwrap()];
    let zipped = zip(&[("readme.txt", b"no report"), ("R!example.com!1!2.XML", xml)]);
    for octets in [xml.to_vec(), gzip(xml), zipped.clone()] {
        assert_eq!(read_reports(&octets).unwrap(), wanted);
        for media_type in ["application/gzip", "application/zip", "application/octet-stream"] {
            assert_eq!(read_reports(&message(media_type, &octets)).unwrap(), wanted, "{media_type}");
        }
    }
    assert_eq!(read_reports(&message("text/xml", xml)).unwrap(), wanted);
    let two = zip(&[("a.xml", xml), ("b.xml", xml)]);
    assert_eq!(read_reports(&two).unwrap().len(), 2);
    for empty in [b"".to_vec(), b"Subject: x\r\n\r\nhello".to_vec(), zip(&[("a.txt", xml)])] {
        assert_eq!(read_reports(&empty), Err(ReportError::Absent));
    }
    let cut = &zipped[..zipped.len() - 9];
    assert!(matches!(read_reports(cut), Err(ReportError::Zip(_))), "{:?}", read_reports(cut));
}

#[test]
fn hostile_input_is_refused_with_its_reason() {
    let bomb = vec![b' '; XML_BYTES_MAX as usize + 10];
    assert_eq!(read_reports(&gzip(&[b"<feedback>", &bomb[..]].concat())), Err(ReportError::Size));
    // Also as one token that never ends, and in parts of an archive.
    assert_eq!(read_reports(&gzip(&[b"<feedback><!--", &bomb[..]].concat())), Err(ReportError::Size));
    let padded = [RFC_9990.as_bytes(), &bomb[..bomb.len() / 2]].concat();
    let zipped = zip(&[("a.xml", &padded), ("b.xml", &padded), ("c.xml", &padded)]);
    assert_eq!(read_reports(&zipped), Err(ReportError::Size));
    // The attachments of a message have one limit together, whatever compression is used.
    let half = gzip(&[RFC_9990.as_bytes(), &bomb[..bomb.len() / 2]].concat());
    assert_eq!(read_reports(&message_of(&[&half])).unwrap().len(), 1);
    assert_eq!(read_reports(&message_of(&[&half, &half])), Err(ReportError::Size));
    let deep = "<feedback>".to_owned() + &"<a>".repeat(100);
    assert_eq!(read_reports(deep.as_bytes()), Err(ReportError::Depth));
    let entity = "<!DOCTYPE f [<!ENTITY a \"aaaa\">]><feedback>&a;</feedback>";
    assert_eq!(read_reports(entity.as_bytes()), Err(ReportError::DocumentType));
    assert_eq!(read_reports(b"<html></html>"), Err(ReportError::Root("html".to_owned())));
    assert_eq!(read_reports(b"<feedback></feedback>"), Err(ReportError::Missing("policy_published/domain")));
    for (from, to, why) in [
        ("<count>123<", "<count>-1<", "record 1: <count> has the invalid value \"-1\""),
        ("<count>123<", "<count>99999999999999999999<", "record 1: <count>"),
        ("2001:db8::1", "localhost", "record 1: <source_ip> has the invalid value \"localhost\""),
        (">pass</disposition>", ">maybe</disposition>", "record 1: <disposition>"),
        ("<row>", "<row></row><row>", ""),
        ("</feedback>", "", "not XML: it ends within an element"),
        ("</record>", "", "not XML: "),
        ("<source_ip>2001:db8::1</source_ip>", "", "<source_ip> is missing"),
    ] {
        let changed = RFC_9990.replacen(from, to, 1);
        let shown = read_reports(changed.as_bytes()).err().map_or_else(String::new, |error| error.to_string());
        assert!(shown.starts_with(why) && shown.is_empty() == why.is_empty(), "{to}: {shown}");
    }
    // What was read can be written and read again.
    let control = RFC_9990.replace("Example.com</domain>", "&#1;a&#27;[2J.test&#xfffe;</domain>");
    let report = read_xml(control.as_bytes()).unwrap();
    assert_eq!(report.policy.domain, "a[2j.test");
    assert_eq!(read_xml(write_xml(&report).as_bytes()).unwrap(), report);
    let nothing = RFC_9990.replace("Example.com</domain>", "&#1;</domain>");
    assert_eq!(read_reports(nothing.as_bytes()), Err(ReportError::Missing("policy_published/domain")));
    assert!(matches!(read_reports(&gzip(b"x")[..12]), Err(ReportError::Compressed(_))));
    let many = RFC_9990.replace("</feedback>", &("<record/>".repeat(3) + "</feedback>"));
    assert_eq!(read_reports(many.as_bytes()), Err(ReportError::Missing("source_ip")));
}

/// A report with these elements in each of its records.
fn repeated(records: usize, reasons: &str, results: &str) -> Vec<u8> {
    let head = RFC_9990.split("<record>").next().unwrap();
    let record = format!(
        "<record><row><source_ip>192.0.2.1</source_ip><count>1</count><policy_evaluated><disposition/>{reasons}\
         </policy_evaluated></row><auth_results>{results}</auth_results></record>"
    );
    format!("{head}{}</feedback>", record.repeat(records)).into_bytes()
}

#[test]
fn a_report_is_bounded_in_memory_and_as_it_is_kept() {
    // Small in XML, large in memory: each element is a struct. Those beyond the limit are left out.
    let bomb = |records| repeated(records, &"<reason/>".repeat(100), &"<dkim/>".repeat(100));
    let report = read_xml(&bomb(100)[..]).unwrap();
    assert!(report.rows.iter().all(|one| (one.row.dkim.len(), one.row.reasons.len()) == (10, 10)));
    let octets = |report: &AggregateReport| report.rows.iter().map(|one| count::octets_of(&one.row)).sum::<usize>();
    let row_bytes = octets(&report) / 100;
    let fits = REPORT_BYTES_MAX / row_bytes;
    assert!(fits * row_bytes <= REPORT_BYTES_MAX && bomb(fits + 1).len() < XML_BYTES_MAX as usize);
    assert!(octets(&read_xml(&bomb(fits)[..]).unwrap()) <= REPORT_BYTES_MAX);
    assert_eq!(read_reports(&gzip(&bomb(fits + 1))), Err(ReportError::Memory));
    assert_eq!(read_xml(&repeated(REPORT_ROWS_MAX + 1, "", "")[..]), Err(ReportError::Rows));
    // What grows when it is written is not kept.
    let escaped = format!("<dkim><domain>{}</domain></dkim>", ">".repeat(500)).repeat(10);
    let written = read_xml(&repeated(1_000, "", &escaped)[..]).unwrap();
    assert!(write_xml(&written).len() as u64 > XML_BYTES_MAX && compressed_xml(&written).is_none());
    assert!(compressed_xml(&report).is_some_and(|kept| read_reports(&kept).unwrap() == [report]));
}

#[test]
fn reports_beyond_the_number_are_not_read() {
    let xml = RFC_9990.as_bytes();
    let files: Vec<Vec<u8>> = (0..3).map(|_| gzip(xml)).collect();
    let files: Vec<&[u8]> = files.iter().map(|file| &**file).collect();
    let mut found = 0;
    assert_eq!(each_report(&message_of(&files), 2, &mut |_| found += 1), Ok(()));
    assert_eq!(found, 2);
    // Those before one that is damaged are passed.
    found = 0;
    assert!(each_report(&message_of(&[files[0], b"<feedback>"]), 2, &mut |_| found += 1).is_err());
    assert_eq!(found, 1);
}

#[test]
fn an_organization_has_a_limit_of_counted_domains() {
    let mut counts = DmarcCounts::default();
    let mut count = |domain: String| counts.message(&PublishedPolicy { domain, ..policy() }, row("192.0.2.1"), NOW);
    (0..150).for_each(|n| count(format!("{n}.evil.test")));
    (0..150).for_each(|n| count(format!("x.org{n}.co.uk")));
    let mut counts = DmarcCounts::read(&counts.write()).unwrap();
    counts.message(&PublishedPolicy { domain: "more.evil.test".to_owned(), ..policy() }, row("192.0.2.1"), NOW);
    let domains: Vec<&str> = counts.finished(NOW + DAY_MS).map(|(_, domain)| domain).collect();
    assert_eq!(domains.iter().filter(|domain| domain.ends_with("evil.test")).count(), 100);
    assert_eq!(domains.len(), 250);
    for (domain, wanted) in [
        ("a.b.test", "b.test"),
        ("b.test", "b.test"),
        ("test", "test"),
        ("x.y.co.uk", "y.co.uk"),
        ("co.uk", "co.uk"),
        ("a.b.mail.de", "mail.de"),
    ] {
        assert_eq!(crate::likely_organization(domain), wanted);
    }
}

#[test]
fn sums_are_by_domain_and_by_source_that_fails() {
    let mut sums = DmarcSums::default();
    let report = |organization: &str, rows: Vec<RowCount>| AggregateReport {
        organization: organization.to_owned(),
        id: "1".to_owned(),
        begin_s: 10,
        end_s: 20,
        policy: policy(),
        rows,
        ..AggregateReport::default()
    };
    let passed = ReportRow { is_spf_aligned: true, disposition: ReportDisposition::None, ..row("192.0.2.1") };
    sums.add(&report(
        "one",
        vec![RowCount { messages: 5, row: passed }, RowCount { messages: 2, row: row("192.0.2.2") }],
    ));
    let without_sender = ReportRow { envelope_from: None, ..row("192.0.2.1") };
    let two = report("two", vec![RowCount { messages: u64::MAX, row: without_sender }]);
    sums.add(&two);
    // The same in another file.
    sums.add(&two);
    assert_eq!(sums.repeated, 1);
    let [domain] = &sums.domains(9)[..] else { panic!() };
    assert_eq!((domain.reports, domain.reporters, domain.sums.messages), (2, 2, u64::MAX));
    assert_eq!(
        (domain.sums.passed, domain.sums.spf_passed, domain.sums.dkim_passed, domain.sums.rejected),
        (5, 5, 0, u64::MAX)
    );
    let sources: Vec<_> =
        sums.failed_sources(9).into_iter().map(|one| (one.source.to_string(), one.sums.passed)).collect();
    assert_eq!(sources, [("192.0.2.1".to_owned(), 5), ("192.0.2.2".to_owned(), 0)]);
    assert!(sums.failed_sources(9).iter().all(|source| source.envelope_from == "b.test"));
    assert_eq!((sums.failed_sources(1).len(), sums.failed_sources_total(), sums.days("a.test")), (1, 2, 1));
    let of = |source: &str| sums.of_source("a.test", source.parse().unwrap()).map(MessageSums::failed);
    assert_eq!((of("192.0.2.2"), of("192.0.2.3")), (Some(2), None));
    assert_eq!(sums.of_domain("a.test"), Some(domain));
}

proptest! {
    #[test]
    fn what_is_written_is_read_whatever_others_chose(texts in proptest::collection::vec("\\PC{0,40}", 9), count in 0..1_000_000_u64) {
        let text = |at: usize| texts[at].trim().to_lowercase();
        let report = AggregateReport {
            organization: text(0),
            email: text(1),
            id: text(2),
            begin_s: 1,
            end_s: 2,
            errors: vec![text(3)],
            policy: policy(),
            rows: vec![RowCount {
                messages: count,
                row: ReportRow {
                    header_from: text(4),
                    envelope_from: Some(text(5)),
                    reasons: vec![OverrideReason { kind: text(6), comment: format!("x{}", text(7)) }],
                    dkim: vec![DkimEntry { domain: text(8), selector: text(0), result: text(1) }],
                    ..row("192.0.2.1")
                },
            }],
        };
        prop_assert_eq!(read_xml(write_xml(&report).as_bytes()).unwrap(), report);
    }

    #[test]
    fn any_octets_are_read_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..400), at in 0..2_000_usize) {
        let _ = read_reports(&octets);
        // A damaged report.
        let mut report = RFC_9990.as_bytes().to_vec();
        let at = at.min(report.len());
        report.splice(at..at, octets.iter().copied());
        let _ = read_reports(&report);
    }
}
