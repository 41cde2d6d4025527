//! The messages of the Talos API, for those who speak it: our client, and the lab that answers like a machine.
//!
//! The `.proto` files are our own: names and numbers are those of Talos 1.8 to 1.14, and what neither side
//! uses is left out, which protobuf allows. There are only messages here, no transport; [`method`] names what can
//! be called.

/// Generated code: what it holds is described in the `.proto` files.
#[allow(missing_docs, clippy::pedantic)]
mod generated {
    pub mod google {
        pub mod rpc {
            include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
        }
    }
    pub mod common {
        include!(concat!(env!("OUT_DIR"), "/common.rs"));
    }
    pub mod machine {
        include!(concat!(env!("OUT_DIR"), "/machine.rs"));
    }
    pub mod storage {
        include!(concat!(env!("OUT_DIR"), "/storage.rs"));
    }
    pub mod cluster {
        include!(concat!(env!("OUT_DIR"), "/cluster.rs"));
    }
    pub mod time {
        include!(concat!(env!("OUT_DIR"), "/time.rs"));
    }
    pub mod inspect {
        include!(concat!(env!("OUT_DIR"), "/inspect.rs"));
    }
    pub mod securityapi {
        include!(concat!(env!("OUT_DIR"), "/securityapi.rs"));
    }
    pub mod cosi {
        pub mod resource {
            include!(concat!(env!("OUT_DIR"), "/cosi.resource.rs"));
        }
    }
}

pub use generated::{
    cluster, common, cosi, google, inspect, machine, securityapi as security, storage, time,
};
pub use prost::Message;
pub use prost_types::{Any, Duration, ListValue, Struct, Timestamp, Value, value};

pub mod code;
pub mod method;
