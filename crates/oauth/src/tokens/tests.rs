use std::fs;

use stentor_resolve::ResolverConfig;
use stentor_sasl::Mechanisms;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;

/// A grant with its files, whose endpoint is at this local port.
fn grant(folder: &std::path::Path, port: u16) -> Arc<OauthGrant> {
    fs::write(folder.join("client"), "s3cret\n").unwrap();
    fs::write(folder.join("refresh"), "r1\n").unwrap();
    Arc::new(OauthGrant {
        token_url: stentor_http_client::Url::parse(&format!("https://127.0.0.1:{port}/token")).unwrap(),
        client_id: "stentor".to_owned(),
        client_secret_file: Some(folder.join("client")),
        refresh_token_file: Some(folder.join("refresh")),
        scope: None,
    })
}

fn source(grant: &Arc<OauthGrant>) -> Source {
    Source {
        grant: grant.clone(),
        host: "relay.example:587".to_owned(),
        counts: Arc::default(),
        keeper: TokenKeeper::default(),
        stamps: GrantStamps::default(),
        unwritten: None,
        is_brief: false,
    }
}

fn answer(refresh: Option<&str>) -> TokenResponse {
    TokenResponse { access_token: Ok(Secret::from("a1")), expires_in_s: None, refresh_token: refresh.map(Secret::from) }
}

fn used<'s>(source: &'s Source, credentials: &'s Credentials) -> &'s str {
    source.refresh_token(credentials).map_or("", Secret::expose)
}

#[test]
fn a_rotated_refresh_token_is_in_its_file_before_a_token_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refresh");
    let mut source = source(&grant(folder.path(), 1));
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    assert_eq!(used(&source, &credentials), "r1");
    source.issued(answer(Some("r2")), credentials, 0, 1).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "r2\n");
    let written = files::stamp(&file);
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    assert_eq!(used(&source, &credentials), "r2");
    source.issued(answer(Some("r2")), credentials, 0, 1).unwrap();
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    source.issued(answer(None), credentials, 0, 1).unwrap();
    assert_eq!(files::stamp(&file), written, "what stays is not written");
}

#[test]
fn a_refresh_token_that_cannot_be_written_is_used_and_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let (file, in_the_way) = (folder.path().join("refresh"), folder.path().join("refresh.new"));
    let mut source = source(&grant(folder.path(), 1));
    fs::create_dir(&in_the_way).unwrap();
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    source.issued(answer(Some("r2")), credentials, 0, 1).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "r1\n");
    assert!(source.unwritten.is_some());
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    assert_eq!(used(&source, &credentials), "r2");
    drop(credentials);
    source.write_unwritten(60_000);
    assert!(source.unwritten.as_ref().is_some_and(|unwritten| unwritten.try_at == 120_000), "still in the way");
    fs::remove_dir(&in_the_way).unwrap();
    source.write_unwritten(120_000);
    assert!(source.unwritten.is_none() && fs::read_to_string(&file).unwrap() == "r2\n");
    // It is also written with the next response.
    fs::create_dir(&in_the_way).unwrap();
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    source.issued(answer(Some("r3")), credentials, 0, 1).unwrap();
    fs::remove_dir(&in_the_way).unwrap();
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    source.issued(answer(None), credentials, 0, 1).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "r3\n");
}

#[test]
fn what_the_operator_has_written_is_newer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refresh");
    let mut source = source(&grant(folder.path(), 1));
    fs::create_dir(folder.path().join("refresh.new")).unwrap();
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    source.issued(answer(Some("r2")), credentials, 0, 1).unwrap();
    fs::write(&file, "of the operator\n").unwrap();
    fs::remove_dir(folder.path().join("refresh.new")).unwrap();
    source.write_unwritten(1_000_000);
    assert!(source.unwritten.as_ref().is_some_and(|unwritten| unwritten.try_at == 1_060_000), "not each second");
    assert_eq!(fs::read_to_string(&file).unwrap(), "of the operator\n");
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    assert_eq!(used(&source, &credentials), "of the operator");
    assert!(source.unwritten.is_none());
}

#[test]
fn a_failure_says_what_helps_and_is_over_when_the_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = source(&grant(folder.path(), 1));
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    let refusal = |fault, text: &str| TokenError { fault, text: text.to_owned() };
    let revoked = "invalid_grant: Token has been expired or revoked.";
    let text = source.failed(&refusal(Fault::Grant, revoked), None, 0);
    drop(credentials);
    let helps = format!("sign in again and write the new refresh token to {}", folder.path().join("refresh").display());
    let wanted = format!("no access token from 127.0.0.1: {}; {helps}", revoked.trim_end_matches('.'));
    assert_eq!(text, wanted);
    assert_eq!(source.keeper.decision(1), TokenDecision::Wait(wanted.clone()));
    assert_eq!(source.credentials(TokenDecision::Wait(wanted.clone())).err(), Some(wanted.clone()));
    // A different length, since the file system's clock is coarse.
    fs::write(folder.path().join("refresh"), "r22\n").unwrap();
    assert_eq!(source.credentials(TokenDecision::Wait(wanted)).map(|of| of.refresh.is_some()), Ok(true));
    assert_eq!(source.keeper.decision(1), TokenDecision::Refresh);
    for (fault, helps) in [(Fault::Client, "; check client_id and the secret in "), (Fault::Scope, "; check scope")] {
        assert!(source.failed(&refusal(fault, "x"), None, 0).contains(helps));
    }
    assert!(source.failed(&refusal(Fault::Endpoint, "x"), None, 0).ends_with(": x"));
    fs::remove_file(folder.path().join("refresh")).unwrap();
    let why = source.credentials(TokenDecision::Refresh).err().unwrap();
    assert!(why.contains("refresh: No such file"), "{why}");
}

/// Of twenty concurrent sessions, the one that sends the request leaves: the endpoint is asked once, and all others get
/// the same result.
#[tokio::test]
async fn one_request_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let grant = grant(folder.path(), listener.local_addr().unwrap().port());
    let asked = Arc::new(AtomicU64::new(0));
    let (accepted, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (counted, has_accepted, may_end) = (asked.clone(), accepted.clone(), go.clone());
    let endpoint = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            has_accepted.notify_one();
            may_end.notified().await;
            drop(connection);
        }
    });
    let (tokens, steady) = (Arc::new(Tokens::default()), Arc::new(|| 0_u64) as Steady);
    let resolver =
        Resolver::new(ResolverConfig { name_servers: vec![([127, 0, 0, 1], 1).into()], ..ResolverConfig::default() })
            .unwrap();
    let host = SmartHost {
        host: "relay.example".to_owned(),
        port: 587,
        user: "ann".to_owned(),
        credential: Credential::Oauth(grant.clone()),
        is_token: true,
        mechanisms: Mechanisms::all(),
        unproven_allowed: false,
    };
    let mut sessions = tokio::task::JoinSet::new();
    let mut first = None;
    for _ in 0..20 {
        let (tokens, host) = (tokens.clone(), host.clone());
        let (grant, steady, resolver) = (grant.clone(), steady.clone(), resolver.clone());
        let session = sessions.spawn(async move {
            let roots = &Roots::none();
            let context = RequestContext { resolver: &resolver, roots, smart_hosts: &[], steady: &steady };
            tokens.token(context, &host, &grant).await
        });
        first.get_or_insert(session);
    }
    accepted.notified().await;
    first.unwrap().abort();
    go.notify_one();
    let mut reasons = Vec::new();
    while let Some(ended) = sessions.join_next().await {
        match ended {
            Ok(token) => reasons.push(token.unwrap_err()),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    endpoint.abort();
    assert!(reasons.len() == 19 && reasons.iter().all(|why| *why == reasons[0]), "{reasons:#?}");
    assert!(reasons[0].starts_with("no access token from 127.0.0.1: TLS with 127.0.0.1:"), "{}", reasons[0]);
    assert_eq!((asked.load(Ordering::Relaxed), tokens.counts()), (1, (0, 1)));
    assert!(!tokens.refused(&host, 1, 0).await, "there is none to refuse");
}

#[test]
fn a_refresh_token_is_written_although_the_access_token_is_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = source(&grant(folder.path(), 1));
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    let refusal = TokenError { fault: Fault::Endpoint, text: "the response has no token_type".to_owned() };
    let answer = TokenResponse { access_token: Err(refusal), ..answer(Some("r2")) };
    let error = source.issued(answer, credentials, 0, 1).unwrap_err();
    assert!(error.contains("no token_type") && fs::read_to_string(folder.path().join("refresh")).unwrap() == "r2\n");
    assert!(matches!(source.keeper.decision(1), TokenDecision::Wait(_)));
}

/// Tests a command, which ends soon.
#[test]
fn nobody_is_asked_where_what_is_rotated_would_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = Source { is_brief: true, ..source(&grant(folder.path(), 1)) };
    fs::create_dir(folder.path().join("refresh.try")).unwrap();
    let error = source.credentials(TokenDecision::Refresh).err().unwrap();
    assert!(error.starts_with("not requested: ") && error.contains("run this as the server's user"), "{error}");
    fs::remove_dir(folder.path().join("refresh.try")).unwrap();
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    fs::create_dir(folder.path().join("refresh.new")).unwrap();
    assert!(source.issued(answer(Some("r2")), credentials, 0, 1).unwrap_err().contains("sign in again"));
}

#[test]
fn another_grant_after_a_reload_keeps_what_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let first = grant(folder.path(), 1);
    let mut source = source(&first);
    fs::create_dir(folder.path().join("refresh.new")).unwrap();
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    let before = source.issued(answer(Some("r2")), credentials, 0, 1).unwrap();
    source.follow(&Arc::new(OauthGrant { scope: Some("mail".to_owned()), ..OauthGrant::clone(&first) }));
    assert_eq!(source.keeper.decision(2), TokenDecision::Refresh);
    let credentials = source.credentials(TokenDecision::Refresh).unwrap();
    assert_eq!(used(&source, &credentials), "r2");
    let after = source.issued(answer(None), credentials, 0, 1).unwrap();
    assert!(after.generation > before.generation);
    source.follow(&Arc::new(OauthGrant {
        refresh_token_file: Some(folder.path().join("client")),
        ..OauthGrant::clone(&first)
    }));
    assert!(source.unwritten.is_none());
}

/// Tests a pipe that nobody writes to.
#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let grant = grant(folder.path(), 1);
    fs::remove_file(folder.path().join("client")).unwrap();
    let pipe = std::ffi::CString::new(folder.path().join("client").to_str().unwrap()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let error = source(&grant).credentials(TokenDecision::Refresh).err().unwrap();
    assert!(error.ends_with("client: not a regular file"), "{error}");
}
