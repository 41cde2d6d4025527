//! The client against answers as servers give them, and as they should not.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use ichor_kube::{
    Client, Deleted, Error, Event, Evicted, Kind, Resource, WatchFrom,
    api::{self, Propagation},
};
use ichor_port::{Http, HttpStream, Pieces, Request, Response, TransportError};
use serde_json::{Value, json};

/// Gives prepared answers, one after the other and the last for ever, and remembers what it was asked.
#[derive(Clone)]
struct Canned {
    answers: Arc<Mutex<VecDeque<Response>>>,
    asked: Arc<Mutex<Vec<Request>>>,
}

fn canned(answers: impl IntoIterator<Item = (u16, String)>) -> (Canned, Client<Canned>) {
    let answers = answers.into_iter().map(|(status, body)| Response {
        status,
        body: body.into_bytes(),
        ..Response::default()
    });
    let canned = Canned { answers: Arc::new(Mutex::new(answers.collect())), asked: Arc::default() };
    (canned.clone(), Client::new(canned))
}

impl Canned {
    fn answer(&self, request: Request) -> Response {
        self.asked.lock().expect("not poisoned").push(request);
        let mut answers = self.answers.lock().expect("not poisoned");
        if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }.expect("an answer")
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("not poisoned").len()
    }
}

impl Http for Canned {
    async fn send(&self, request: Request, _within: Duration) -> Result<Response, TransportError> {
        Ok(self.answer(request))
    }
}

/// A body in pieces of seven bytes.
#[derive(Debug)]
struct Sliced(VecDeque<Vec<u8>>);

impl Pieces for Sliced {
    async fn next(&mut self, _within: Duration) -> Result<Option<Vec<u8>>, TransportError> {
        Ok(self.0.pop_front())
    }
}

impl HttpStream for Canned {
    type Pieces = Sliced;

    async fn open(&self, request: Request, _: Duration) -> Result<(Response, Sliced), TransportError> {
        let mut answer = self.answer(request);
        let body = std::mem::take(&mut answer.body);
        Ok((answer, Sliced(body.chunks(7).map(<[u8]>::to_vec).collect())))
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> (u16, String) {
    let status =
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message});
    (code, status.to_string())
}

fn page(names: &[&str], next: &str) -> (u16, String) {
    let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    let page =
        json!({"kind": "List", "metadata": {"resourceVersion": "5", "continue": next}, "items": items});
    (200, page.to_string())
}

fn pod() -> api::Pod {
    serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "b", "uid": "u"}})).expect("a pod")
}

#[tokio::test]
async fn pages_are_joined() {
    let (canned, client) = canned([page(&["a", "b"], "t 1"), page(&["c"], "")]);
    let nodes = client.list(&api::nodes()).await.expect("nodes").items;
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let asked = canned.asked.lock().expect("not poisoned");
    assert_eq!(asked[0].target, "/api/v1/nodes?limit=500");
    assert_eq!(asked[1].target, "/api/v1/nodes?limit=500&continue=t%201");
}

#[tokio::test]
async fn a_list_that_grew_too_old_begins_again_but_not_for_ever() {
    let gone = refusal(410, "Expired", "The provided continue parameter is too old");
    let (_, client) = canned([page(&["a"], "t"), gone.clone(), page(&["b"], "")]);
    assert_eq!(client.list(&api::nodes()).await.expect("nodes").items[0].name, "b");
    let (canned, client) = canned([gone]);
    let error = client.list(&api::nodes()).await.expect_err("always too old");
    assert_eq!((error.refusal(), canned.asked()), (Some(Kind::Expired), 3));
}

#[tokio::test]
async fn a_list_without_end_is_given_up() {
    let names = vec!["x"; 1_000];
    let (canned, client) = canned([page(&names, "more")]);
    let error = client.list(&api::nodes()).await.expect_err("endless");
    assert!(matches!(&error, Error::Nonsense { why, .. } if why == "the list has no end"), "{error}");
    assert!(canned.asked() <= 101);
    let (empty, client) = self::canned([page(&[], "more")]);
    client.list(&api::nodes()).await.expect_err("empty pages");
    assert_eq!(empty.asked(), 2);
}

#[tokio::test]
async fn another_pod_of_the_same_name_is_not_evicted() {
    let why = "Operation cannot be fulfilled on pods \"b\": Precondition failed: UID in precondition: u, UID in object meta: v";
    let (_, client) = canned([refusal(409, "Conflict", why)]);
    assert_eq!(client.evict(&pod()).await, Ok(Evicted::Missing));
    let (_, client) = canned([refusal(404, "NotFound", "pods \"b\" not found")]);
    assert_eq!(client.evict(&pod()).await, Ok(Evicted::Missing));
}

#[tokio::test]
async fn a_busy_server_is_no_budget() {
    let (_, client) = canned([refusal(429, "TooManyRequests", "the server has received too many requests")]);
    let error = client.evict(&pod()).await.expect_err("busy");
    assert_eq!((error.refusal(), error.may_have_happened()), (Some(Kind::Busy), false));
    let two =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let (_, client) = canned([refusal(500, "InternalError", two)]);
    let error = client.evict(&pod()).await.expect_err("two budgets");
    assert!(error.to_string().contains(two), "{error}");
}

#[tokio::test]
async fn a_conflict_is_not_an_absence() {
    let why =
        "Operation cannot be fulfilled on namespaces \"a\": The system is ensuring all content is removed";
    let (_, client) = canned([refusal(409, "Conflict", why)]);
    let call = api::delete(&Resource::NAMESPACES, None, "a", None, Propagation::Background);
    assert_eq!(client.delete(&call).await.expect_err("not empty").refusal(), Some(Kind::Conflict));
    let (_, client) = canned([(200, json!({"kind": "Status", "status": "Success"}).to_string())]);
    assert_eq!(client.delete(&call).await, Ok(Deleted::Going));
}

#[tokio::test]
async fn a_sick_server_says_what_ails_it() {
    let text = "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n";
    let (_, client) = canned([(500, text.into())]);
    let probe = client.probe(api::READY).await.expect("an answer");
    assert_eq!((probe.well, probe.failing), (false, vec!["etcd".to_owned()]));
    let (_, client) = canned([(503, "upstream is down".into())]);
    assert_eq!(client.probe(api::READY).await.expect_err("a proxy").refusal(), Some(Kind::Broken));
}

#[tokio::test]
async fn a_watch_tells_until_its_version_is_forgotten() {
    let lines = [
        json!({"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "6"}}}),
        json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}),
        json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (canned, client) = canned([(200, body)]);
    let mut watch = client.watch(&Resource::NODES, None, &WatchFrom::version("5")).await.expect("a watch");
    let within = Duration::from_secs(1);
    let first = watch.next(within).await.expect("an event").expect("one");
    assert!(matches!(&first, Event::Modified(node) if node["metadata"]["name"] == "a"));
    assert_eq!(watch.next(within).await, Ok(Some(Event::Bookmark("9".into()))));
    assert_eq!(watch.next(within).await.expect_err("gone").refusal(), Some(Kind::Expired));
    let target = canned.asked.lock().expect("not poisoned")[0].target.clone();
    assert_eq!(
        target,
        "/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=300"
    );
}

#[tokio::test]
async fn a_watch_that_is_refused_or_broken_says_so() {
    let (_, client) = canned([refusal(410, "Expired", "too old resource version")]);
    let error = client.watch(&Resource::NODES, None, &WatchFrom::version("1")).await.expect_err("too old");
    assert_eq!(error.refusal(), Some(Kind::Expired));
    let (_, client) = canned([(500, "x".repeat(1 << 20))]);
    let error = client.watch(&Resource::NODES, None, &WatchFrom::version("1")).await.expect_err("long");
    assert!(error.to_string().len() < 3_000);
    let (_, client) = canned([(200, "x".repeat(9 << 20))]);
    let mut watch = client.watch(&Resource::NODES, None, &WatchFrom::version("1")).await.expect("a watch");
    let error = watch.next(Duration::from_secs(1)).await.expect_err("no line");
    assert!(matches!(error, Error::Nonsense { .. }), "{error}");
    let (_, client) = canned([(200, "{\"type\": \"ADD".into())]);
    let mut watch = client.watch(&Resource::NODES, None, &WatchFrom::version("1")).await.expect("a watch");
    assert_eq!(watch.next(Duration::from_secs(1)).await, Ok(None), "half an event is none");
}

#[tokio::test]
async fn a_strange_answer_is_no_panic() {
    for body in ["", "null", "[]", "{}", "7", "{\"items\": {}}", "{\"items\": [null]}", &"[".repeat(100_000)]
    {
        let (_, client) = canned([(200, body.into())]);
        assert!(client.list(&api::nodes()).await.is_err(), "{body:.20}");
        assert!(client.list(&api::volumes()).await.is_err(), "{body:.20}");
        assert!(client.send(&api::version()).await.is_err(), "{body:.20}");
        let _ = client.send(&api::deployment("a", "b")).await;
        let _ = client.api_versions().await;
        let _ = client.discover("apps/v1", "Deployment").await;
    }
}
