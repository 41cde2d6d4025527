//! Subresources that are questions or orders: eviction, tokens, access reviews, approval.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{
    Cluster,
    access::{self, User, Wish},
    rest::body,
    selector::Labels,
    status::{Failure, success},
    target::Target,
    value::{is_terminating, name, namespace, number, set, text, timestamp},
};
use crate::{ground::Ground, wire::Request};

/// How many tokens are kept.
const MOST_TOKENS: usize = 10_000;

impl Cluster {
    /// Evicts a pod, unless a disruption budget forbids it.
    pub(super) fn evict(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
    ) -> Result<Value, Failure> {
        let eviction = body(request)?;
        let pod = self
            .store
            .get("pods", &target.namespace, &target.name)
            .cloned()
            .ok_or_else(|| target.not_found())?;
        let options = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
        let dry = target.query.get("dryRun") == "All"
            || options.get("dryRun").is_some_and(|dry| *dry == json!(["All"]));
        let free =
            is_terminating(&pod) || matches!(text(&pod, "/status/phase"), "Pending" | "Succeeded" | "Failed");
        if !free {
            self.spend_budget(ground, &pod, dry)?;
        }
        if !dry {
            self.remove_object(ground, "pods", &pod, &options);
        }
        let mut status = success(&Value::Null);
        super::value::remove(&mut status, &["details"]);
        status["code"] = 201.into();
        Ok(status)
    }

    fn spend_budget(&mut self, ground: &Ground, pod: &Value, dry: bool) -> Result<(), Failure> {
        const KEY: &str = "poddisruptionbudgets.policy";
        let budgets: Vec<Value> = self
            .store
            .list(KEY, namespace(pod))
            .filter(|budget| {
                // A budget without selector is for no pod, one with an empty selector for all.
                budget.pointer("/spec/selector").is_some_and(|selector| Labels::of(selector).fit(pod))
            })
            .cloned()
            .collect();
        let mut budget = match budgets.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            _ => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Failure::plain(500, "InternalError", why));
            }
        };
        let (generation, observed) =
            (number(&budget, "/metadata/generation"), number(&budget, "/status/observedGeneration"));
        if observed.unwrap_or(0) < generation.unwrap_or(0) {
            let cause = json!({
                "reason": "DisruptionBudget",
                "message": format!("The disruption budget {} is still being processed by the server.", name(&budget)),
            });
            return Err(too_many().with_causes(vec![cause]).retry_after(10));
        }
        let allowed = number(&budget, "/status/disruptionsAllowed").unwrap_or(0);
        if allowed <= 0 {
            let (wanted, has) =
                (number(&budget, "/status/desiredHealthy"), number(&budget, "/status/currentHealthy"));
            let cause = json!({
                "reason": "DisruptionBudget",
                "message": format!(
                    "The disruption budget {} needs {} healthy pods and has {} currently",
                    name(&budget), wanted.unwrap_or(0), has.unwrap_or(0)
                ),
            });
            return Err(too_many().with_causes(vec![cause]));
        }
        if !dry {
            set(&mut budget, &["status", "disruptionsAllowed"], json!(allowed - 1));
            set(&mut budget, &["status", "disruptedPods", name(pod)], timestamp(ground.now));
            self.store.put(KEY, budget);
        }
        Ok(())
    }

    /// Makes a token for a service account. It looks like a JSON web token, but the lab's API servers know it by
    /// heart: nobody else could check it.
    pub(super) fn issue_token(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
    ) -> Result<Value, Failure> {
        let mut answer = body(request)?;
        if self.store.get("serviceaccounts", &target.namespace, &target.name).is_none() {
            return Err(target.not_found());
        }
        if self.tokens.len() >= MOST_TOKENS {
            self.tokens.pop_first();
        }
        let seconds = number(&answer, "/spec/expirationSeconds").unwrap_or(3600).clamp(600, 1 << 32);
        let end = ground.now + std::time::Duration::from_secs(seconds.unsigned_abs());
        let subject = format!("system:serviceaccount:{}:{}", target.namespace, target.name);
        let claims = json!({"iss": "https://kubernetes.default.svc", "sub": subject, "exp": end.unix_seconds(),
            "iat": ground.now.unix_seconds(), "jti": ground.random.uuid()});
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","kid":"lab"}"#);
        let mut mark = [0; 32];
        ground.random.fill(&mut mark);
        let token = format!(
            "{header}.{}.{}",
            URL_SAFE_NO_PAD.encode(claims.to_string()),
            URL_SAFE_NO_PAD.encode(mark)
        );
        self.tokens.insert(token.clone(), format!("{}/{}", target.namespace, target.name));
        answer["kind"] = "TokenRequest".into();
        answer["apiVersion"] = "authentication.k8s.io/v1".into();
        set(&mut answer, &["status"], json!({"token": token, "expirationTimestamp": timestamp(end)}));
        Ok(answer)
    }

    /// Answers a review.
    pub(super) fn review(&self, target: &Target, request: &Request, user: &User) -> Result<Value, Failure> {
        let mut review = body(request)?;
        if !review.is_object() {
            return Err(Failure::bad_request("the object provided is unrecognized (must be an object)"));
        }
        review["kind"] = target.resource.kind.as_ref().into();
        review["apiVersion"] = target.resource.api_version().into();
        match target.resource.kind.as_ref() {
            "SelfSubjectReview" => {
                review["status"] = json!({"userInfo": {"username": user.name, "groups": user.groups}});
            }
            "SelfSubjectAccessReview" => {
                review["status"] = json!({"allowed": self.may(&review, user)});
            }
            "SubjectAccessReview" => {
                let groups = super::value::list(&review, "/spec/groups").iter().filter_map(Value::as_str);
                let other = User {
                    name: text(&review, "/spec/user").into(),
                    groups: groups.map(Into::into).collect(),
                };
                review["status"] = json!({"allowed": self.may(&review, &other)});
            }
            "SelfSubjectRulesReview" => {
                // Complete only for those who may do everything; the lab does not add rules up for others.
                let all = access::allows(&self.store, user, Wish::Path("get", "/everything"));
                let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
                review["status"] = json!({"resourceRules": if all { rules } else { json!([]) }, "nonResourceRules": [], "incomplete": !all});
            }
            _ => {
                let account = self.tokens.get(text(&review, "/spec/token"));
                review["status"] = match account.and_then(|account| account.split_once('/')) {
                    Some((namespace, name)) => json!({"authenticated": true, "user": {
                        "username": format!("system:serviceaccount:{namespace}:{name}")}}),
                    None => json!({"authenticated": false}),
                };
            }
        }
        Ok(review)
    }

    fn may(&self, review: &Value, user: &User) -> bool {
        let at = |key: &str| text(review, &format!("/spec/resourceAttributes/{key}"));
        if review.pointer("/spec/resourceAttributes").is_some() {
            let resource = match at("subresource") {
                "" => at("resource").to_owned(),
                sub => format!("{}/{sub}", at("resource")),
            };
            let wish = Wish::Resource {
                verb: at("verb"),
                group: at("group"),
                resource: &resource,
                namespace: at("namespace"),
                name: at("name"),
            };
            return access::allows(&self.store, user, wish);
        }
        let verb = text(review, "/spec/nonResourceAttributes/verb");
        access::allows(&self.store, user, Wish::Path(verb, text(review, "/spec/nonResourceAttributes/path")))
    }
}

fn too_many() -> Failure {
    Failure::plain(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    )
}
