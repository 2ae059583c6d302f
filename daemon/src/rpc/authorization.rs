//! The calls that each role may make. A call without a rule is refused to all roles.

use std::sync::Arc;
use std::task::{Context, Poll};

use proto::wire;
use security::Role;
use tonic::Status;
use tonic::codegen::http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;
use wire::request::Body;

use crate::rpc::service::Shared;
use crate::rpc::tls_context::Caller;

/// The least role that may make each call of each service.
const RULES: &[(&str, Role)] = &[
    ("/starling.v1.Peer/Link", Role::Node),
    // The requests of a session have rules of their own: `least_role_of_request`.
    ("/starling.v1.Peer/Session", Role::Observer),
    ("/starling.v1.Peer/Fetch", Role::Observer),
    ("/starling.v1.Peer/Events", Role::Observer),
    ("/starling.v1.Peer/Streams", Role::Observer),
    ("/starling.v1.Peer/Stop", Role::Client),
    ("/starling.v1.Peer/Put", Role::Client),
    ("/starling.v1.Peer/Bring", Role::Client),
    ("/starling.v1.Peer/Keep", Role::Node),
    ("/starling.v1.Peer/Rsh", Role::Node),
    ("/starling.v1.Kv/Insert", Role::Client),
    ("/starling.v1.Kv/Lookup", Role::Observer),
    ("/starling.v1.Kv/Remove", Role::Client),
    ("/starling.v1.Kv/Append", Role::Client),
    ("/starling.v1.Kv/Cas", Role::Client),
    ("/starling.v1.Kv/Batch", Role::Client),
    ("/starling.v1.Kv/Watch", Role::Observer),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Role::Observer),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::Observer),
];

/// The least role for a call; `None` if no role may make it.
#[must_use]
pub fn least_role(path: &str) -> Option<Role> {
    RULES.iter().find(|(known, _)| *known == path).map(|(_, role)| *role)
}

/// The least role for a request of a session.
#[must_use]
pub fn least_role_of_request(body: Option<&Body>) -> Role {
    let reads = |batch: &wire::KvBatch| {
        batch.ops.iter().all(|op| op.kind == i32::from(wire::KvKind::Lookup))
    };
    let reads_only = match body {
        None => true, // Such a request is answered with an error.
        Some(
            Body::Job(_)
            | Body::WatchJob(_)
            | Body::Jobs(_)
            | Body::Tasks(_)
            | Body::Explain(_)
            | Body::WatchKey(_)
            | Body::WatchEnds(_)
            | Body::Node(_)
            | Body::Map(_),
        ) => true,
        Some(Body::Open(open)) => {
            use wire::open_request::What;
            matches!(open.what, None | Some(What::CountOpen(_)))
        }
        Some(Body::Kv(batch)) => reads(batch),
        Some(Body::KvMany(many)) => many.batches.iter().all(reads),
        Some(
            Body::Submit(_)
            | Body::Commit(_)
            | Body::Cancel(_)
            | Body::Retry(_)
            | Body::Forget(_)
            | Body::SetVariable(_)
            | Body::Tune(_)
            | Body::Propose(_),
        ) => false,
    };
    if reads_only { Role::Observer } else { Role::Client }
}

/// Applies the rules to every service.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizationLayer(pub(crate) Arc<Shared>);

impl<S> Layer<S> for AuthorizationLayer {
    type Service = Authorized<S>;

    fn layer(&self, service: S) -> Authorized<S> {
        Authorized { service, shared: Arc::clone(&self.0) }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Authorized<S> {
    service: S,
    shared: Arc<Shared>,
}

impl<S> Authorized<S> {
    fn check<B>(&self, request: &Request<B>) -> Result<(), Status> {
        let caller = request.extensions().get::<Caller>();
        let caller = caller.ok_or_else(|| Status::unauthenticated("the caller is unknown"))?;
        let path = request.uri().path();
        let Some(least) = least_role(path) else {
            return Err(Status::permission_denied("there is no such call"));
        };
        if caller.role < least {
            let (role, address) = (caller.role, caller.address);
            self.shared.log.refusal(&format!("refused {path} to the {role} at {address}"));
            return Err(Status::permission_denied(format!("the role {role} may not do this")));
        }
        Ok(())
    }
}

impl<S, B, R> Service<Request<B>> for Authorized<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send + 'static>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.check(&request) {
            Ok(()) => Box::pin(self.service.call(request)),
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}
