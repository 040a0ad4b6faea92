package main

var replays = []mutant{}
