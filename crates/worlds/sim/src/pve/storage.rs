//! Storages: their definitions, their volumes, and where images come from.

mod api;
pub mod checksum;
pub mod definition;
pub mod images;
pub mod shelves;
pub mod volume;
pub mod web;

use serde::{Deserialize, Serialize};

pub use self::{definition::Definition, shelves::Storages};
use crate::{
    ground::Ground,
    pve::{Datacentre, Exit, Next, Route, Worker},
};

/// What a task does with a storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// `download`.
    Download(Box<images::Download>),
    /// `imgcopy`.
    Upload(Box<images::Upload>),
    /// `imgdel`.
    Delete(api::Delete),
}

impl Work {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self {
            Self::Download(work) => work.step(dc, ground, worker),
            Self::Upload(work) => work.step(dc, ground, worker),
            Self::Delete(work) => work.step(dc, ground, worker),
        }
    }

    /// Cleans up after the process was told to end.
    pub fn interrupt(&mut self, dc: &mut Datacentre, _ground: &mut Ground, worker: &mut Worker) -> Exit {
        match self {
            Self::Download(work) => work.interrupt(dc, worker),
            Self::Upload(_) | Self::Delete(_) => Exit::Failed("received interrupt".into()),
        }
    }
}

/// The endpoints below `/storage` and `/nodes/{node}/storage`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/storage", api::definitions),
        Route::post("/storage", api::add),
        Route::get("/storage/{storage}", api::definition),
        Route::put("/storage/{storage}", api::change),
        Route::delete("/storage/{storage}", api::remove),
        Route::get("/nodes/{node}/storage", api::list),
        Route::get("/nodes/{node}/storage/{storage}", api::index),
        Route::get("/nodes/{node}/storage/{storage}/status", api::status),
        Route::get("/nodes/{node}/storage/{storage}/prunebackups", api::prune_preview),
        Route::get("/nodes/{node}/storage/{storage}/content", api::content),
        Route::post("/nodes/{node}/storage/{storage}/content", api::allocate),
        Route::get("/nodes/{node}/storage/{storage}/content/{volume}", api::attributes),
        Route::put("/nodes/{node}/storage/{storage}/content/{volume}", api::set_attributes),
        Route::delete("/nodes/{node}/storage/{storage}/content/{volume}", api::delete),
        Route::post("/nodes/{node}/storage/{storage}/download-url", images::download_url),
        Route::post("/nodes/{node}/storage/{storage}/upload", images::upload),
        Route::get("/nodes/{node}/query-url-metadata", images::query_url),
    ]
}
