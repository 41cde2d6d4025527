module ichor.test/conformance/node/programs

go 1.26.0
