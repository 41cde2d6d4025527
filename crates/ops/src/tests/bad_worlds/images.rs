//! Images that are not whole, and a factory that does not give any.

use ichor_model::Observed;
use ichor_plan::files::image_place;
use ichor_sim::{
    faults::{Kind, Server, When},
    ground::Content,
    pve::storage::web::{File, Page},
};

use super::{SMALL, compare, shows, shows_untouched};
use crate::{
    converge::Goal,
    tests::{live::Rehearsal, resolve},
};

#[tokio::test(start_paused = true)]
async fn an_image_that_broke_off_is_fetched_again() {
    for source in ["disk", "iso"] {
        let world = Rehearsal::bad(&format!("{SMALL}image: {{source: {source}}}\n"));
        let named = crate::image::name_all(&world.desired).expect("images").remove(0);
        let url = named.url.expect("an address");
        let short = Page::of(File::of_bytes(b"truncated"), "application/octet-stream");
        world.change(|lab| lab.ground.web.pages.insert(url.clone(), short));
        shows(&format!("truncated-{source}"), &world).await;
        world.change(|lab| lab.ground.web.pages.remove(&url));
        world.recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_that_lies_there_broken_is_replaced() {
    for (source, kept) in [("disk", 9), ("iso", 9), ("disk", 4096)] {
        let world = Rehearsal::bad(&format!("{SMALL}image: {{source: {source}}}\n"));
        let images = Goal::Up { phase: Some(ichor_plan::Phase::Images), only: Vec::new() };
        assert!(world.run_to(world.reach(), &world.desired, images).await.is_ok());
        let named = crate::image::name_all(&world.desired).expect("images").remove(0);
        for host in ["pve2", "pve3"] {
            let at = host.parse().expect("a host");
            let image = &world.desired.images[0];
            let volume = image_place(&world.desired, &Observed::default(), image, &named.id, &at).volume;
            world.change(|lab| {
                let file = lab.pve.storage.get_mut(host, &volume).expect("an image");
                (file.size, file.used, file.file) = (kept, kept, None);
                let (content, bytes) = (file.content, vec![b'x'; usize::try_from(kept).expect("small")]);
                lab.ground.media.set(content, Content::Bytes(bytes));
            });
        }
        world.recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_fails_is_named() {
    let world = Rehearsal::bad(SMALL);
    world.fault(Server::Factory, "*", 0, Kind::Close(When::Before));
    shows_untouched("factory-down", &world).await;
    world.mend();
    let answer = format!("{{\"id\":\"{}\"}}", "0".repeat(64));
    world.fault(Server::Factory, "POST /schematics", 0, Kind::Payload(answer));
    shows_untouched("factory-other-id", &world).await;
    world.mend();
    world.fault(Server::Factory, "HEAD /image/*", 0, Kind::Hang(When::Before));
    shows_untouched("factory-silent", &world).await;
    world.mend();
    world.fault(Server::Factory, "GET /version/*/extensions/official", 0, Kind::Payload("[]".into()));
    let extended = resolve(&format!("{SMALL}image: {{extensions: [siderolabs/iscsi-tools]}}\n"));
    compare("factory-without-extension", &world.run_with(world.reach(), &extended).await);
    world.mend();
    world.recovers().await;
}
