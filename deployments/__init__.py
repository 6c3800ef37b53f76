"""The Ray Serve application: HTTP gateway, verifier replicas and the `outrider` command."""
