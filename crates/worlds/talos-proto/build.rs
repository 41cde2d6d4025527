//! Turns our `.proto` files into message types, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const FILES: [&str; 9] = [
        "common.proto",
        "machine.proto",
        "lifecycle.proto",
        "image.proto",
        "storage.proto",
        "cluster.proto",
        "time.proto",
        "inspect.proto",
        "security.proto",
    ];
    const COSI: [&str; 1] = ["cosi.proto"];
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(FILES.iter().chain(&COSI), ["proto"])?;
    prost_build::Config::new().btree_map(["."]).compile_fds(files)?;
    Ok(())
}
