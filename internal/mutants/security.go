package main

var security = []mutant{}
