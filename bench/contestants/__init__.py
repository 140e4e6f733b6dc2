"""The servers that are compared. Each is a Contestant: started with its own data in a folder of its own, in a control
group of its own, relaying everything to the sink on loopback, and always stopped."""
